"""Entry points of the functions."""
