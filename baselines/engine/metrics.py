"""The names in metrics.csv."""

COLUMNS = ("round", "split", "model", "metric", "value")
OWN_GROUP = "own group"  # the "model" of a mean over the nodes, each with the model of its group
