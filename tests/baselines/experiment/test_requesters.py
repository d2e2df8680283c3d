"""The node that a personal model is for, and the node that it is judged for."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord

from baselines import results
from baselines.engine.evaluation import Evaluator
from baselines.errors import UserError
from baselines.experiment import config, experiment
from baselines.experiment.preflight import check
from clients.evaluation import evaluate
from helpers.runs import played
from strategies.parts.weighting import EVERY_NODE

TABLE = "experiment=weight_erosion/table2"
DIGITS = "dataset=digits model=softmax num_nodes=10 rounds=1"
SMALL = f"{DIGITS} partitioner.distribution=C partitioner.chunked=false"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("strategy=weight_erosion weighting=requester", (0, 0)),
        ("strategy=weight_erosion weighting=requester weighting.requester=3", (3, 3)),
        ("strategy=weight_erosion_all weighting=each_requester", (EVERY_NODE, EVERY_NODE)),
        ("strategy=fedavg", (None, 0)),
    ],
)
def test_the_table_judges_the_node_that_it_trains_for(
    overrides: str, expected: tuple[object, object]
) -> None:
    cfg = config.load(f"{TABLE} {SMALL} {overrides}")
    assert (cfg.weighting.get("requester"), cfg.partitioner.requester) == expected
    check(experiment.load(f"{TABLE} {SMALL} {overrides}"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ("strategy=weight_erosion weighting=requester partitioner.requester=3", "partitioner.requester=3"),
        ("strategy=weight_erosion_all weighting=requester", "weighting.requester=0"),
        (
            "strategy=weight_erosion_all weighting=each_requester partitioner.requester=0",
            "partitioner.requester=0",
        ),
        ("strategy=weight_erosion weighting=each_requester", "weighting.requester=each"),
    ],
)
def test_two_requesters_that_differ_are_refused(overrides: str, setting: str) -> None:
    with pytest.raises(UserError, match=f"^{setting}"):
        check(experiment.load(f"{TABLE} {SMALL} {overrides}"))


@pytest.mark.slow
def test_each_model_is_judged_on_its_own_node_s_test_examples(tmp_path: Path) -> None:
    overrides = f"{TABLE} {SMALL} strategy=weight_erosion_all weighting=each_requester save=last"
    metrics = played(overrides, tmp_path)
    setup = experiment.load(overrides)
    labels = setup.dataset.labels_of("test")
    assert labels is not None
    for node in range(10):
        examples = setup.node_data.own_test_examples(node)
        assert set(labels[examples.index]) == {(digit - node) % 10 for digit in range(4)}
        model = results.model(tmp_path, f"node{node}")
        expected = evaluate(model, examples, setup.dataset.task)["accuracy"]
        rows = metrics.query(f"round == 1 and split == 'test' and model == 'node{node}'")
        assert rows.set_index("metric").value["accuracy"] == expected


def test_predictions_are_of_the_same_examples() -> None:
    setup = experiment.load(f"{TABLE} {SMALL} strategy=weight_erosion_all weighting=each_requester")
    model = ArrayRecord(setup.model().state_dict())
    (own, _), (every, _) = Evaluator(setup).predictions([model, model], [3, None])
    assert len(every) == len(setup.test_examples) > len(own)
    assert np.unique(own).tolist() == [0, 7, 8, 9]
