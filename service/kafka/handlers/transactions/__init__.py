"""Transactions of both generations of clients."""
