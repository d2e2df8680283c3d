"""For how long do other nodes count? The Weight Erosion report chooses p_d by it (section IV.C).

A weight that has reached zero stays there: from that round on the requester learns from its own data alone.
"""

from pathlib import Path

from baselines.errors import UserError
from baselines.reports.measurements import measured


def rounds_with_others(folder: Path) -> int:
    """Return in how many rounds a node beside the requester has a weight above zero.

    Raises
    ------
    UserError : when the run has no weights of nodes, or metrics.csv is damaged
    """
    rows = measured(folder)
    weights = rows[(rows.split == "train") & rows.metric.str.startswith("weight_")]
    if weights.empty:
        raise UserError(f"{folder} has no weights of nodes: run it with strategy=weight_erosion")
    nodes_that_count = (weights.value > 0).groupby(weights["round"]).sum()
    return int((nodes_that_count > 1).sum())
