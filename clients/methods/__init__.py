"""The node's half of each method, in files named like the strategies."""
