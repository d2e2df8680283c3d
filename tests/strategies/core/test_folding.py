"""Folded replies: the round is that of each node's own, to rounding, and whoever needs each is refused."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict

from helpers.federation import Federation, Model, Node, answer, model_in, play, record, round_of, sent_model
from strategies import (
    Adam,
    AndMask,
    ByExamples,
    CentralPrivacy,
    Erosion,
    Extrapolated,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedER,
    FedExP,
    FedGMA,
    FedNova,
    LocalOnly,
    LocalPrivacy,
    MagnitudeMask,
    Mean,
    Median,
    NoMask,
    QFedAvg,
    SandMask,
    Scaffold,
    ScaledSign,
    Uniform,
)
from strategies.core.replies import make_partial_sums
from strategies.core.strategy import BaseStrategy
from strategies.parts.layout import Layout
from strategies.parts.updates import Updates
from strategies.shared import protocol
from strategies.shared.arrays import SharedMean

START = {
    "w": np.array([[1.0, -2.0], [0.5, 4.0]], np.float32),
    "n.running_mean": np.array([3.0], np.float32),
    "n.num_batches_tracked": np.array(7, np.int64),
}
NODES = 7


class Folded(Federation):
    """A grid that folds the replies of every third node into one mean, as workers with a share each do."""

    def __init__(self, strategy: BaseStrategy, node: Node) -> None:
        super().__init__(node, NODES)
        self.strategy = strategy

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        messages = list(messages)
        replies = super().send_and_receive(messages, timeout=timeout)
        for share in (replies[k::3] for k in range(3)):
            folding = make_partial_sums(self.strategy, messages[0].content.array_records[protocol.ARRAYS])
            folded = [reply for reply in share if folding.add_reply(reply)]
            mean = folding.mean()
            assert mean is not None
            shared = SharedMean(mean, folding.sums())
            for reply in folded:
                assert not reply.content.array_records
                reply.content[protocol.ARRAYS] = shared
        return replies


def moves(partition_id: int, content: RecordDict) -> RecordDict:
    """Move away from what was sent, by node and round; have as many examples as the node's number says."""
    sent, step = sent_model(content), np.float32(0.1 * (partition_id + 1) * round_of(content))
    return answer(
        {name: (values + step).astype(values.dtype) for name, values in sent.items()}, partition_id + 1
    )


def breaks(partition_id: int, content: RecordDict) -> RecordDict:
    """Do so, but for node 3, which sends NaN, and node 5, which has trained on nothing."""
    reply = moves(partition_id, content)
    if partition_id == 3:
        return answer({**sent_model(content), "w": np.full((2, 2), np.nan, np.float32)}, 4)
    return answer(sent_model(content), 0) if partition_id == 5 else reply


def floats(arrays: ArrayRecord) -> Model:
    """Return what is no whole number: those are rounded once more."""
    return {name: array for name, array in model_in(arrays).items() if array.dtype.kind == "f"}


@pytest.mark.parametrize("node", [moves, breaks])
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (FedAvg, START),
        (lambda: FedAvg(weighting=Uniform()), START),
        (lambda: FedAvgM(average_last=2), START),
        (FedAdam, START),
        (FedDyn, START),
        (FedExP, START),
        (FedGMA, START),
        (lambda: FedExP(mask=AndMask(0.4), server_optimizer=Adam()), START),
        (lambda: FedAvg(weighting=Uniform(), privacy=LocalPrivacy()), "w"),  # statistics have no noise
    ],
    ids=["fedavg", "uniform", "fedavgm", "fedadam", "feddyn", "fedexp", "fedgma", "both", "local privacy"],
)
def test_a_round_of_means_is_that_of_all_nodes(
    make: Callable[[], BaseStrategy], names: Iterable[str], node: Node
) -> None:
    start, strategy = record({name: START[name] for name in names}), make()
    alone = play(make(), Federation(node, NODES), start, (1, 2, 3))
    folded = play(strategy, Folded(strategy, node), start, (1, 2, 3))
    for (ours, metrics), (theirs, expected) in zip(folded, alone, strict=True):
        metrics, expected = dict(metrics), dict(expected)  # who answered, and what they measured
        assert metrics.pop("step-size") == pytest.approx(expected.pop("step-size"), rel=1e-6)
        assert metrics == expected  # the mask is the same, to the bit
        for name, actual in floats(ours).items():
            np.testing.assert_allclose(actual, floats(theirs)[name], rtol=1e-6, atol=2e-6, err_msg=name)


def test_the_mean_by_hand_and_a_row_for_each_mean() -> None:
    seen: list[Updates] = []

    class Spy(FedAvg):
        sums = ()

        def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], object]:  # type: ignore[override]
            seen.append(updates)
            return super().take_step(server_round, updates)

    strategy = Spy()
    ((arrays, _),) = play(strategy, Folded(strategy, breaks), record(START))
    counts = np.array([1, 2, 3, 5, 7])  # of the nodes 0, 1, 2, 4 and 6
    mean = (counts * counts * 0.1).sum() / counts.sum()
    np.testing.assert_allclose(model_in(arrays)["w"], START["w"] + mean, rtol=1e-6)
    (updates,) = seen
    assert updates.partition_ids == (0, 1, 2, 4, 6)
    assert updates.deltas.shape == (3, 4)
    assert updates.rows is not None
    assert updates.rows.tolist() == [0, 1, 2, 1, 0]


class Sober(Mean):
    """A user's own aggregation, which may read each update."""


@dataclass(frozen=True)
class Own(Extrapolated):
    """A user's own step size, which may read each update."""


class Normed(FedAvg):
    """A user's own strategy, whose step may read each update."""

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], torch.Tensor]:
        updates.deltas.div_(updates.deltas.norm(dim=1, keepdim=True))
        return super().take_step(server_round, updates)


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (FedAvg(mask=MagnitudeMask()), "mask=MagnitudeMask"),
        (FedAvg(mask=SandMask()), "mask=SandMask"),
        (FedExP(step_size=Own()), "step_size=Own"),
        (FedER(), "weighting=EffectiveRank"),
        (FedAvg(weighting=Erosion(requester=0, distance_penalty=0.05)), "weighting=Erosion"),
        (FedNova(), "aggregation=Normalized"),
        (FedAvg(compression=ScaledSign()), "compression=ScaledSign"),
        (QFedAvg(), "aggregation=Fair"),
        (FedAvg(weighting=Uniform(), aggregation=Median()), "aggregation=Median"),
        (FedAvg(aggregation=Sober()), "aggregation=Sober"),
        (FedAvg(weighting=Uniform(), privacy=CentralPrivacy()), "privacy=CentralPrivacy"),
        (Scaffold(num_nodes=7), "strategy=Scaffold, whose replies carry"),
        (Normed(), "strategy=Normed, with a step of its own,"),
        (FedDyn(weighting=ByExamples()), "strategy=FedDyn with weighting=ByExamples"),
        (LocalOnly(inner=FedAvg()), "strategy=LocalOnly"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_needs_each_update_is_named(strategy: BaseStrategy, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make_partial_sums(strategy, record({"w": START["w"]}))


def test_the_sums_by_hand() -> None:
    """Nodes 0 and 2 share row 0, node 1 has row 1; f is computed of the rows of nodes that are alone."""
    layout = Layout.of(record({"w": START["w"]}))
    deltas = torch.tensor([[1.0, -2.0, 0.0, 3.0], [-1.0, -1.0, 4.0, 0.0]])
    shared = {
        "squared-norms": torch.tensor(5.0, dtype=torch.float64),
        "signs": torch.tensor([2.0, -1, 0, 1]),
    }
    updates = Updates(
        deltas,
        torch.zeros(2, 0),
        torch.ones(3, dtype=torch.float64),
        (0, 1, 2),
        layout,
        torch.zeros(4),
        rows=torch.tensor([0, 1, 0]),
        row_sums={0: shared},
    )
    weights = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    assert float(updates.sum("squared-norms", weights)) == pytest.approx(0.5 * 5 + 0.5 * 18)
    assert updates.sum("signs").tolist() == [1, -2, 1, 1]
    alone = replace(updates, rows=None, row_sums={}, partition_ids=(0, 1))
    assert float(alone.sum("squared-norms", weights[:2])) == pytest.approx(0.25 * 14 + 0.5 * 18)
    assert alone.sum("signs").tolist() == [0, -2, 1, 1]


def test_a_sum_that_nobody_computes_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"Cubes\.sums has 'cubes': expected names out of \['squared-norms'"
    ):
        type("Cubes", (Extrapolated,), {"sums": ("cubes",)})


@pytest.mark.parametrize(("old", "now"), [(True, ()), (False, None)])
@pytest.mark.parametrize("kind", [ByExamples, Mean, NoMask, Extrapolated, CentralPrivacy, FedAvg])
def test_a_part_that_says_needs_only_mean_gets_one_line(
    kind: type, old: bool, now: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    own = type(f"Own{kind.__name__}{old}", (kind,), {"needs_only_mean": old})
    assert own.sums == now
    (line,) = caplog.messages
    assert line.startswith(
        f"Own{kind.__name__}{old}: needs_only_mean is now sums, () for True and None for"
    )
