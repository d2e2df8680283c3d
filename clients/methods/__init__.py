"""Methods: what a node does for a paper, in files named as the strategies are."""
