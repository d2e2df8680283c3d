"""Tables and figures of runs, models and partitions."""

X_AXES = ("round", "seconds", "virtual_seconds", "bytes")  # what a figure's curves go by
BANDS = ("std", "ci", "minmax", "none")  # what a figure's bands are
WIDTHS = {"column": 3.5, "page": 7.16}  # inches, of a two-column paper (IEEE, ACM)
