"""Rounds taken in every way, and in a plain loop of torch."""
