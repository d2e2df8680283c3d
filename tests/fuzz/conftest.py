"""Puts this folder on the path, so that its modules can be used by the tests and by scripts/fuzz alike."""
