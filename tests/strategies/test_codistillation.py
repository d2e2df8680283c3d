"""Co-distillation: by hand, its reduction, and who learns from whom."""

import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record
from helpers.server_data import Products
from strategies import CoDistillation, Distillation, FedAvg, LocalOnly

ENDS = np.array([[math.log(3), 0.0], [math.log(9), 0.0], [0.0, math.log(4)]])
RATE = 0.05


def nodes() -> Federation:
    """Return three nodes that end at (ln 3, 0), (ln 9, 0) and (0, ln 4) from anywhere."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": ENDS[partition_id], "running_mean": np.full(1, partition_id)}, 1 + partition_id)

    return Federation(node, 3)


def start() -> ArrayRecord:
    return record({"w": np.zeros(2), "running_mean": np.zeros(1)})


def codistillation(steps: int, lr: float = RATE, **settings: object) -> CoDistillation:
    """Return it with logits x w for the inputs 1 and 2, both in each step."""
    inner = FedAvg(**settings)  # type: ignore[arg-type]
    return CoDistillation(
        inner=inner, distillation=Distillation(steps, lr, 2), server_data=Products("w", (1.0, 2.0))
    )


def models(strategy: LocalOnly) -> dict[str, list[float]]:
    return {
        name: model_in(model)["w"].tolist() for name, model in strategy.models_to_evaluate(start()).items()
    }


def test_by_hand() -> None:
    """The others' logits differ, on average, by (ln 9 - ln 4) / 2, (ln 3 - ln 4) / 2 and ln 27 / 2.

    A node's own differ by ln 3 = 1.10, ln 9 = 2.20 and -ln 4 = -1.39, and the others' by 0.41, -0.14 and 1.65:
    the first two learn to favour the first class less, and the third more, by one step of Adam each.
    """
    strategy = codistillation(1)
    ((mean, _),) = play(strategy, nodes(), start())
    ways = np.array([[-RATE, RATE], [-RATE, RATE], [RATE, -RATE]])
    for (name, actual), expected in zip(models(strategy).items(), ENDS + ways, strict=True):
        assert actual == pytest.approx(expected.tolist(), rel=1e-6), name
    buffers = [model_in(m)["running_mean"].item() for m in strategy.models_to_evaluate(start()).values()]
    assert buffers == [0, 1, 2]
    assert model_in(mean)["w"] == pytest.approx((ENDS + ways).mean(0), rel=1e-6)


def test_many_steps_reach_what_the_others_predicted_after_local_training() -> None:
    strategy = codistillation(400, lr=0.1)
    play(strategy, nodes(), start())
    others = [math.log(9 / 4) / 2, math.log(3 / 4) / 2, math.log(27) / 2]
    apart = [first - second for first, second in models(strategy).values()]
    assert apart == pytest.approx(others, rel=1e-4)


def test_no_step_is_local_training_bit_for_bit() -> None:
    none, local = (
        CoDistillation(inner=FedAvg(), distillation=Distillation(steps=0)),
        LocalOnly(inner=FedAvg()),
    )
    assert not none.needs_server_data
    for (first, _), (second, _) in zip(
        *(play(s, nodes(), start(), (1, 2)) for s in (none, local)), strict=True
    ):
        assert_same(first, second)
    assert models(none) == models(local)


def test_nodes_that_do_not_train_neither_teach_nor_learn() -> None:
    settings = {"nodes_per_round": 2, "query_partitions": True, "num_nodes": 3}
    strategy, grid = codistillation(1, **settings), nodes()
    play(strategy, grid, start())
    trained = grid.trained()
    assert len(trained) == 2
    for k, (name, w) in enumerate(models(strategy).items()):
        if k not in trained:
            assert w == [0, 0], name
            continue
        (other,) = {*trained} - {k}
        way = RATE if ENDS[other] @ (1, -1) > ENDS[k] @ (1, -1) else -RATE
        assert w == pytest.approx([ENDS[k][0] + way, ENDS[k][1] - way], rel=1e-6)


def test_one_node_alone_trains_as_it_would() -> None:
    strategy = codistillation(1, nodes_per_round=1, query_partitions=True, num_nodes=3)
    grid = nodes()
    play(strategy, grid, start())
    (k,) = grid.trained()
    assert models(strategy)[f"node{k}"] == ENDS[k].tolist()


def test_a_mean_of_iterates_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.inner\.average_last=2 is out of range"):
        codistillation(1, average_last=2)


def test_it_needs_examples() -> None:
    strategy = CoDistillation(inner=FedAvg())
    with pytest.raises(ValueError, match="CoDistillation needs examples on the server"):
        play(strategy, nodes(), start())
