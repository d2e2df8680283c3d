"""The rounds of a run, and its files."""
