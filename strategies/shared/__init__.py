"""Shared by server and nodes; the only part of this package that ``clients`` may import."""
