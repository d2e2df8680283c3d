"""The same bits for less time."""
