"""The share of coordinates that a mask diminishes: GMA's figure 3.1, by round."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from helpers.federation import Federation, answer, play, record
from strategies import AgreementMask, AndMask, FedAvg, FedGMA, Grouped, Mask, NoMask
from strategies.parts import layout as blocks
from strategies.parts.layout import Layout
from strategies.parts.updates import Updates

# Of four nodes A = 1, 0.5, 0.5 (a 0 votes for neither side), 0, and 0 where nobody moves.
ENDS = np.array(
    [
        [1.0, 1.0, 1.0, 1.0, 0.0],
        [2.0, 1.0, 1.0, 1.0, 0.0],
        [1.0, 2.0, 0.0, -1.0, 0.0],
        [3.0, -1.0, 0.0, -1.0, 0.0],
    ]
)


def node(partition_id: int, content: RecordDict) -> RecordDict:
    return answer({"w": ENDS[partition_id]})


def share(strategy: FedAvg | Grouped) -> float | None:
    ((_, metrics),) = play(strategy, Federation(node, 4), record({"w": np.zeros(5)}))
    return metrics.get("masked-share")  # type: ignore[return-value]


@pytest.mark.parametrize("kind", [AndMask, AgreementMask])
@pytest.mark.parametrize(("tau", "below"), [(0, 0), (0.25, 2), (0.5, 2), (0.51, 4), (1, 4)])
def test_by_hand(kind: type[AndMask], tau: float, below: int) -> None:
    assert share(FedAvg(mask=kind(tau))) == below / 5


def test_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CPU_BLOCK_COLUMNS", 2)
    assert share(FedGMA(mask=AgreementMask(0.51))) == 0.8


def test_whatever_the_factors_are_kept_in() -> None:
    """bfloat16 has eight bits for what is counted."""
    ends = torch.ones(2, 1000, dtype=torch.bfloat16)
    ends[1, :3] = -1
    layout, one = Layout.of(record({"w": np.zeros(1000)})), torch.ones(2)
    updates = Updates(ends, torch.empty(2, 0), one, (0, 1), layout, torch.zeros(1000))
    _, factors = AgreementMask(0.5).mean_and_mask(updates, one / 2)
    assert factors is not None
    assert factors.masked_share == 0.003


def test_by_group() -> None:
    """Nodes 0 and 1 agree where they move, 2 and 3 at the first and the fourth coordinate."""
    mask: Mask = AgreementMask(0.4)
    groups = {"low": (0, 1), "high": (2, 3)}
    assert share(Grouped(inner=FedAvg(mask=mask), groups=groups)) == pytest.approx((0.2 + 0.6) / 2)


def test_nothing_is_shown_where_no_mask_is_chosen() -> None:
    assert share(FedAvg(mask=NoMask())) is None
