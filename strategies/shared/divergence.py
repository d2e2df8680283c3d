"""Divergence: a model whose outputs are not numbers has no measure.

``argmax``, signs and comparisons make something of NaN all the same: the accuracy of a model of NaN would
be the share of class 0.
"""

import math
from collections.abc import Mapping

from . import protocol

COUNTS = (protocol.NUM_EXAMPLES, protocol.PARTITION_ID)  # of an evaluation, and no measures of the model


def void_measures(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an evaluation, each measure NaN where the loss is NaN."""
    loss = metrics.get(protocol.LOSS)
    if not isinstance(loss, float) or not math.isnan(loss):
        return dict(metrics)
    return {name: value if is_count(name) else math.nan for name, value in metrics.items()}


def has_diverged(metrics: Mapping[str, float]) -> bool:
    """Say whether the loss of an evaluation is not finite; without a loss, whether no measure is."""
    measures = {name: value for name, value in metrics.items() if not is_count(name)}
    if protocol.LOSS in measures:
        return not math.isfinite(measures[protocol.LOSS])
    return bool(measures) and not any(map(math.isfinite, measures.values()))


def is_count(name: str) -> bool:
    """Say whether a metric of an evaluation, by either of its names, measures nothing of the model."""
    return name.replace("_", "-") in COUNTS
