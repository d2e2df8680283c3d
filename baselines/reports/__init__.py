"""Tables and figures of runs, models and partitions."""

X_AXES = ("round", "seconds", "bytes")  # what a figure's curves go by
WIDTHS = {"column": 3.5, "page": 7.16}  # inches, of a two-column paper (IEEE, ACM)
