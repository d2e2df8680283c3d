"""A strategy of one's own that has two models judged."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord

from helpers.federation import Federation, answer, play, record, sent_model
from strategies import FedAvg, Grouped


class Two(FedAvg):
    """Lets the server judge the model, and the one without its weights; the nodes judge nothing."""

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        return {"global": arrays, "zero": record({"w": np.zeros(2)})}


class Heavier(Two):
    """Its first model is for three nodes, the other for one."""

    def model_weight(self, name: str) -> int:
        return 3 if name == "global" else 1


@pytest.mark.parametrize(("kind", "share"), [(Two, 1 / 2), (Heavier, 3 / 4)])
def test_the_mean_is_over_the_models_weights_which_are_one_each(kind: type[FedAvg], share: float) -> None:
    grid = Federation(lambda _, content: answer(sent_model(content)), 2)
    strategy = kind(federated_evaluation=False)

    def mean_of(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"mean": float(arrays["w"].numpy().mean())})

    actual = strategy.start(grid, record({"w": np.full(2, 8.0)}), num_rounds=1, evaluate_fn=mean_of)
    assert actual.evaluate_metrics_serverapp[1]["mean"] == pytest.approx(8 * share)


def test_a_group_weighs_its_nodes_and_the_model_before_all_groups_one() -> None:
    grid = Federation(lambda _, content: answer(sent_model(content)), 3)
    strategy = Grouped(inner=FedAvg(), groups={"pair": (0, 2), "one": (1,)})
    assert strategy.model_weight("global") == 1
    play(strategy, grid, record({"w": np.zeros(2)}))
    assert [strategy.model_weight(name) for name in ("pair", "one")] == [2, 1]


def test_the_metrics_of_a_single_model_stay_as_they_are() -> None:
    """A mean would turn counts into fractions, and fail for lists."""
    grid = Federation(lambda _, content: answer(sent_model(content)), 2)
    metrics = {"right": 3, "losses": [1.0, 2.0]}
    strategy = FedAvg(federated_evaluation=False)
    actual = strategy.start(
        grid, record({"w": np.zeros(2)}), num_rounds=1, evaluate_fn=lambda *_: MetricRecord(metrics)
    )
    assert dict(actual.evaluate_metrics_serverapp[1]) == metrics
    assert type(actual.evaluate_metrics_serverapp[1]["right"]) is int
