"""Puts this folder on the path, so that the tests below it can use its modules (runs, tiny)."""
