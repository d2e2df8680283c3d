"""What each ``personal=`` is good for, and what it refuses."""

from pathlib import Path

import pytest

from helpers.runs import curve, launch, played

SMALL = "dataset=digits num_nodes=3 node_test_fraction=0.2"
TWO_CLASSES = "dataset=digits partitioner=pathological rounds=5 node_test_fraction=0.2"
METHODS = [
    "ditto",
    "fedrep",
    "per_fedavg client.personal.alpha=0.2",
    "apfl",
    "pfedme",
    "fedbabu client.personal.fine_tune_epochs=5",
]
REFUSED = {
    "ditto private=fedper": "client.private=['last'] with client.personal=Ditto",
    "ditto client.personal.strength=-1": "client.personal.strength=-1 is out of range",
    "ditto node_test_fraction=0": "client.personal=Ditto: the model is whole at a node alone",
    "apfl private=fedper": "client.private=['last'] with client.personal=APFL",
    "apfl client.personal.alpha=1.5": "client.personal.alpha=1.5 is out of range",
    "pfedme client.personal.strength=0": "client.personal.strength=0 is out of range",
    "pfedme client.personal.inner_steps=0": "client.personal.inner_steps=0 is out of range",
    "pfedme client.personal.inner_rate=0": "client.personal.inner_rate=0 is out of range",
    "pfedme client.personal.inner_rate=0.2 client.personal.strength=10": "below 2 / strength = 0.2, or the inner",
    "fedbabu client.personal.fine_tune_epochs=-1": "client.personal.fine_tune_epochs=-1 is out of range",
    "fedbabu client.personal.rate=0": "client.personal.rate=0 is out of range",
    "fedbabu client.personal.head=[]": "client.personal.head=[] is no parameter of the model",
    "fedrep client.private=[]": "client.private=[] there are none to train: set client.private=[last]",
    "fedrep client.personal.head_epochs=-1": "client.personal.head_epochs=-1 is out of range",
    "fedrep node_test_fraction=0": "client.private=['last']: the model is whole at a node alone",
    "fedrep strategy=scaffold": "client.private=['last'] with a strategy that asks nodes for ControlVariate",
    "per_fedavg client.personal.alpha=-1": "client.personal.alpha=-1 is out of range",
    "per_fedavg client.personal.first_order=maybe": "client.personal.first_order=maybe is out of range",
    "per_fedavg node_test_fraction=0": "client.personal=PerFedAvg: the model is whole at a node alone",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> float:
    """The accuracy of one model for all nodes, each of two classes, on what is like their own examples."""
    return curve(played(TWO_CLASSES, tmp_path_factory.mktemp("shared")), "node-test", "accuracy")[-1]


@pytest.mark.parametrize("method", METHODS)
def test_nodes_of_two_classes_do_better_with_models_of_their_own(
    method: str, shared: float, tmp_path: Path
) -> None:
    own = curve(played(f"{TWO_CLASSES} personal={method}", tmp_path), "node-test", "accuracy")[-1]
    assert own > shared + 0.1


@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=REFUSED)
def test_what_makes_no_sense_is_refused(
    overrides: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = f"{SMALL} rounds=2 personal={overrides} hydra.run.dir={tmp_path}".split()
    assert launch(*run) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
