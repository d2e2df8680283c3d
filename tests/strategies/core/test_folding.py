"""Folded replies: the round is that of each node's own, to rounding, and whoever needs each is refused."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict

from helpers.federation import Federation, Model, Node, answer, model_in, play, record, round_of, sent_model
from strategies import (
    ByExamples,
    CentralPrivacy,
    Erosion,
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
    Mean,
    Median,
    QFedAvg,
    Scaffold,
    ScaledSign,
    Uniform,
)
from strategies.core.stacking import folding_of
from strategies.core.strategy import BaseStrategy
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
            folding = folding_of(self.strategy, messages[0].content.array_records[protocol.ARRAYS])
            folded = [reply for reply in share if folding.take(reply)]
            mean = folding.mean()
            assert mean is not None
            shared = SharedMean(mean)
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
    told = moves(partition_id, content)
    if partition_id == 3:
        return answer({**sent_model(content), "w": np.full((2, 2), np.nan, np.float32)}, 4)
    return answer(sent_model(content), 0) if partition_id == 5 else told


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
        (lambda: FedAvg(weighting=Uniform(), privacy=LocalPrivacy()), "w"),  # statistics have no noise
    ],
    ids=["fedavg", "uniform", "fedavgm", "fedadam", "feddyn", "local privacy"],
)
def test_a_round_of_means_is_that_of_all_nodes(
    make: Callable[[], BaseStrategy], names: Iterable[str], node: Node
) -> None:
    start, strategy = record({name: START[name] for name in names}), make()
    alone = play(make(), Federation(node, NODES), start, (1, 2, 3))
    folded = play(strategy, Folded(strategy, node), start, (1, 2, 3))
    for (ours, told), (theirs, expected) in zip(folded, alone, strict=True):
        assert dict(told) == dict(expected)  # who answered, and what they measured
        for name, found in floats(ours).items():
            np.testing.assert_allclose(found, floats(theirs)[name], rtol=1e-6, atol=2e-6, err_msg=name)


def test_the_mean_by_hand_and_a_row_for_each_mean() -> None:
    seen: list[Updates] = []

    class Spy(FedAvg):
        needs_only_mean = True

        def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], object]:  # type: ignore[override]
            seen.append(updates)
            return super()._step(server_round, updates)

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


class Normed(FedAvg):
    """A user's own strategy, whose step may read each update."""

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], torch.Tensor]:
        updates.deltas.div_(updates.deltas.norm(dim=1, keepdim=True))
        return super()._step(server_round, updates)


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        (FedGMA(), "mask=AgreementMask"),
        (FedExP(), "step_size=Extrapolated"),
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
        folding_of(strategy, record({"w": START["w"]}))
