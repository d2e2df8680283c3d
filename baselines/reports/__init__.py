"""Tables and figures of runs, models and partitions."""

X_AXES = ("round", "seconds", "virtual_seconds", "bytes")  # the axes for a figure's curves
BANDS = ("std", "ci", "minmax", "none")  # the kinds of bands
WIDTHS = {"column": 3.5, "page": 7.16}  # inches, of a two-column paper (IEEE, ACM)
