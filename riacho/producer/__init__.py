"""Producers, synchronous and asynchronous."""
