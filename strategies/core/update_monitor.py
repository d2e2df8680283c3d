"""Leave out updates that are far too long, and return to the last good model.

A finite update of norm 1e30 is a sound reply, and ruins the model for all. Its norm gives it away: it is
measured here, compared with the median of the updates that were accepted, and left out by name where it is
too long. If a ruined model is sent all the same, the nodes' losses show it, and the server goes back.
"""

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

import torch
from flwr.app import ArrayRecord, Message
from torch import Tensor

from strategies.parts.layout import CHUNK_ELEMENTS, squared_norms
from strategies.parts.updates import Updates
from strategies.shared import protocol
from strategies.shared.arrays import to_float64
from strategies.shared.checks import require

from .replies import metrics_of

logger = logging.getLogger("flwr.strategies")

AUTO_MAX_NORM = 10.0  # the multiple of the median that max_norm=auto stands for
MIN_NORMS = 3  # norms that a median needs: of two, nobody knows which is wrong
MAX_KEPT_NORMS = 100  # accepted norms that the median is of


def require_max_norm(value: object) -> None:
    """Refuse anything but null, ``auto`` or a multiple above 1."""
    is_multiple = type(value) in (int, float) and value > 1  # type: ignore[operator]
    require(
        value in (None, "auto") or is_multiple, "participation.max_norm", value, "auto, above 1, or null"
    )


@dataclass
class UpdateMonitor:
    """Judges the norms ||Delta_k||, over all parameters, of the updates of one model.

    Parameters
    ----------
    max_norm : a multiple of the median: an update with a larger norm is left out; None leaves out none

    The median is that of the last hundred accepted norms and of the round's own together; with fewer than
    three norms in all, or a median of 0, nothing is left out.
    """

    max_norm: float | None = None
    norms: dict[int, float] = field(default_factory=dict)  # of the last round, by partition
    _accepted: list[float] = field(default_factory=list)
    _first_examples: dict[int, float] = field(default_factory=dict)  # by partition, of sites

    def measure(self, updates: Updates) -> None:
        """Take the norms of a round's updates; none where rows are means of several."""
        alone = updates.rows is None
        norms = map(_norm, updates.deltas) if alone else []
        self.norms = dict(zip(updates.partition_ids, norms, strict=False))

    def find_outliers(self) -> dict[int, str]:
        """Return whose update of the round is too long, and why."""
        if self.max_norm is None or len(self._accepted) + len(self.norms) < MIN_NORMS:
            return {}
        middle = median_low([*self._accepted, *self.norms.values()])
        if middle == 0:  # most have not moved the model: there is no length to compare with
            return {}
        line = "the norm of its update is {:.3g}, {:.3g} times the median: participation.max_norm={:g}"
        return {
            k: line.format(norm, norm / middle, self.max_norm)
            for k, norm in self.norms.items()
            if norm > self.max_norm * middle
        }

    def find_inflated_counts(self, updates: Updates, sites: Mapping[str, int]) -> dict[int, str]:
        """Return which sites report more examples than in their first sound reply."""
        numbers, line = set(sites.values()), "reports {} examples, and first said {}"
        faults = {}
        for k, count in zip(updates.partition_ids, updates.num_examples.tolist(), strict=True):
            if k in numbers and count > (first := self._first_examples.setdefault(k, count)):
                faults[k] = line.format(int(count), int(first))
        return faults

    def accept(self, partition_ids: tuple[int, ...]) -> None:
        """Count the norms of the updates that the step is made of."""
        self._accepted += [self.norms[k] for k in partition_ids if k in self.norms]
        del self._accepted[:-MAX_KEPT_NORMS]

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round depends on."""
        return {"accepted": list(self._accepted), "first_examples": dict(self._first_examples)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from it."""
        self._accepted, self._first_examples = list(state["accepted"]), dict(state["first_examples"])


@dataclass
class Recovery:
    """Remembers the last model at which most nodes' losses were numbers.

    ``excluded`` are the partitions whose update has ruined a model: they take part no more.
    """

    excluded: set[int] = field(default_factory=set)
    _sent: tuple[ArrayRecord, dict[str, Any]] | None = None  # what went out, and the strategy's state then
    _last_good: tuple[ArrayRecord, dict[str, Any]] | None = None
    _has_no_suspect: bool = False  # whether the last retreat found nobody to blame
    _norms_since: dict[int, float] = field(default_factory=dict)  # norms of the updates accepted since

    def send(self, arrays: ArrayRecord, state: dict[str, Any]) -> None:
        """Remember what goes out in this round."""
        self._sent = arrays, copy.deepcopy(state)

    def accept(self, norms: Mapping[int, float]) -> None:
        """Take what was sent for good: a step has been made with updates of these norms."""
        self._last_good, self._norms_since = self._sent, dict(norms)

    def roll_back(self) -> tuple[ArrayRecord, dict[str, Any], dict[int, float], int | None] | None:
        """Return the last good model, the state then, the norms since, and whose update is to blame.

        None where there is no such model, and after a retreat for which nobody was to blame: another would
        lead round in a circle. To blame is the node whose update is ten times as long as any other.
        """
        if self._last_good is None or self._has_no_suspect:
            return None
        (arrays, state), since = self._last_good, self._norms_since
        *_, second, longest = [None, None, *sorted(since, key=since.__getitem__)]
        stands_out = (
            second is not None and longest is not None and since[longest] >= AUTO_MAX_NORM * since[second]
        )
        culprit = longest if stands_out else None
        if culprit is not None:
            self.excluded.add(culprit)
        self._has_no_suspect = culprit is None
        self._last_good, self._norms_since = None, {}
        return arrays, state, since, culprit

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round depends on."""
        return {
            "excluded": sorted(self.excluded),
            "good": self._last_good,
            "since": dict(self._norms_since),
            "at_a_loss": self._has_no_suspect,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from it."""
        good = state["good"]
        self.excluded, self._norms_since = set(state["excluded"]), dict(state["since"])
        self._last_good = None if good is None else (good[0], good[1])
        self._has_no_suspect = state["at_a_loss"]


def _norm(row: Tensor) -> float:
    """Return ||row||, in float64: the square of 1e30 overflows float32."""
    pieces = torch.split(row, CHUNK_ELEMENTS)
    return math.sqrt(math.fsum(float(squared_norms(to_float64(piece))) for piece in pieces))


def has_mostly_diverged(answered: Mapping[int, Message]) -> bool:
    """Say whether more than half of the nodes that answered report a loss that is no number."""
    losses = [metrics_of(reply).get(protocol.LOSS) for reply in answered.values() if not reply.has_error()]
    lost = sum(isinstance(loss, float) and not math.isfinite(loss) for loss in losses)
    return 2 * lost > len(losses)
