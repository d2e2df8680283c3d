"""Every model in every way, and those of a user that no way foresaw."""

import pytest

from baselines.experiment.overrides import CONF
from clients.fast import gradient
from helpers.agreement.settings import PICTURES
from helpers.agreement.ways import (
    BATCHED,
    BOTH,
    CAPTURED,
    CAPTURED_BATCH,
    EAGER,
    RECORDED,
    WAYS,
    Way,
    compare,
    ours,
)

DEEP = "dataset.shape=[3,8,8] dataset.load.size=14 num_nodes=2 client.batch_size=4"
MODELS = {  # each on pictures of its size, and whether nodes with it can be batched: not with dropout
    "softmax": ("", True),
    "mlp": ("model.hidden=8", True),
    "mlp30": ("", True),
    "lenet": (PICTURES, True),
    "cnn4": (PICTURES, False),
    "cnn6": (PICTURES, False),
    "emnist_cnn": (PICTURES, False),
    "we_cnn": (PICTURES, True),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_every_model(model: str, way: Way) -> None:
    more, batches = MODELS[model]
    compare(f"model={model} {more}", way, batches=batches)


@pytest.mark.slow
@pytest.mark.parametrize("way", [RECORDED, BOTH], ids=str)
@pytest.mark.parametrize(("model", "batches"), [("resnet18", False), ("resnet18_gn", True)])
def test_a_deep_model(model: str, batches: bool, way: Way) -> None:
    compare(f"model={model} {DEEP}", way, batches=batches)


def test_no_model_is_missing() -> None:
    files = {path.stem for path in (CONF / "model").glob("*.yaml")}
    elsewhere = {"linear", "char_lstm", "transformer", "causal_transformer", "lora"}  # test_agree_tasks.py
    elsewhere |= {"huggingface"}  # tests/baselines/models/test_pretrained.py
    assert {*MODELS, *elsewhere, "resnet18", "resnet18_gn"} == files


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("model", "batches"),
    [
        ("twins", True),
        ("frozen", True),
        ("dropping", False),
        ("buffered", False),
        ("counting", None),  # None: in either way, as long as the numbers are right
        ("layer_drop", None),
        ("own_forward", None),
    ],
)
def test_a_users_model(model: str, batches: bool | None, way: Way) -> None:
    compare(f"model={model} client.local_epochs=3", way, batches=batches)


@pytest.mark.slow
def test_recorded_means_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else eager steps would be held beside eager ones: a replay does not call the model."""
    from helpers.agreement import users

    calls = []
    forward = users.Twins.forward
    monkeypatch.setattr(users.Twins, "forward", lambda self, x: calls.append(1) or forward(self, x))
    counts = {}
    for way in WAYS:
        calls.clear()
        before = gradient.count_steps()
        ours("model=twins client.local_epochs=3", way)
        counts[way] = len(calls)
        ways = {gradient.EAGER} | ({gradient.RECORDED} if way.recorded else set())
        ways |= {gradient.CAPTURED} if way.captured else set()
        assert {kind for kind, steps in gradient.steps_since(before).items() if steps} == ways
    assert counts[EAGER] == 2 * 3 * 9  # rounds, epochs, and the nodes' batches
    assert counts[CAPTURED] == counts[RECORDED] < counts[EAGER] / 2
    assert counts[CAPTURED_BATCH] == counts[BOTH] < counts[BATCHED] < counts[EAGER] / 2
