"""A list, a mapping, nothing or another part where a setting expects something else: one line, status 2."""

from pathlib import Path

import pytest

from helpers.runs import launch

PART = "is out of range: expected a part"
MISTAKES = {
    # a list or a mapping for a scalar, and the reverse
    "client.keep_optimizer=[false]": "client.keep_optimizer=[False] is out of range: expected",
    "strategy=fedexp step_size.clamp={}": "step_size.clamp={} is out of range: expected true or false",
    "client.max_grad_norm=[]": "client.max_grad_norm=[] is out of range: expected a number or null",
    "client.optimizer.weight_decay=true": "client.optimizer.weight_decay=true is out of range: expected",
    "client.optimizer.momentum=[1,2]": "client.optimizer.momentum=[1, 2] is out of range: expected",
    "client=adamp client.optimizer.nesterov={lr:0.1}": "client.optimizer.nesterov={'lr': 0.1} is",
    "client.optimizer._partial_=0.5": "client.optimizer._partial_=0.5 is out of range: expected",
    "~client.optimizer._partial_": "expected a part that can be called (a class with _partial_: true)",
    "model.input_shape=abc": "model.input_shape=abc is out of range: expected a list of whole numbers",
    "dataset.load.mean=abc": "dataset.load.mean=abc is out of range: expected a list of numbers",
    "strategy.weighting=[0.1]": f"strategy.weighting=[0.1] {PART}, chosen with weighting=...",
    "strategy.mask={}": f"strategy.mask={{}} {PART}, chosen with mask=...",
    "server_optimizer._target_=strategies.FedAvg": f"'strategies.FedAvg'}} {PART}",
    "weighting._target_=builtins.dict": f"'builtins.dict'}} {PART}",
    "client.schedule.gamma=1" + "0" * 400: "is out of range: expected a number",
    # what belongs to no part
    "device=false": "device=false is out of range: expected a text",
    "device=nan": "device=nan is out of range: expected a text",
    "data_root=[1]": "data_root=[1] is out of range: expected a text",
    "threads=1" + "0" * 30: "is out of range: expected at most 1024",
    "device=meta": "device=meta is out of range: expected cpu, cuda, mps, xpu or auto",
    "validation_size=true": "validation_size=true is out of range: expected a whole number, 0 or above",
    "checkpoint_every=true": "checkpoint_every=true is out of range: expected a whole number, 0 or above",
    "runtime.batch_clients=1": "runtime.batch_clients=1 is out of range: expected true or false",
    "dataset.load.std=[0]": "std=[0] is out of range: expected numbers above 0",
    "dataset.load.mean=[inf]": "dataset.load.mean=[inf] is out of range: expected a list of numbers",
    "client.optimizer.lr=inf": "client.optimizer.lr=inf is out of range: expected a number",
    "dataset.num_classes=0": "dataset.num_classes=0 is out of range: expected a whole number above 0",
    "dataset.shape=[0]": "dataset.shape=[0] is out of range: expected a list of whole numbers above 0",
    # no value, or no such value
    "evaluate_every=???": "evaluate_every=??? has no value: set evaluate_every=...",
    "strategy.mask=???": "strategy.mask=??? has no value",
    "~model._target_": "model has no _target_, the class to build: choose an option, model=...",
    "dataset.load=true": "dataset.load has no _target_",
    "strategy=[1]": "strategy=[1] names no option: expected one of afl, ",
    "=3": "cannot read =3: expected key=value",
    "timeout=${nowhere}": "timeout cannot be read: Interpolation key 'nowhere' not found",
    "client.schedule.gamma=${oc.env:NO_SUCH}": "client.schedule.gamma cannot be read: ",
    "debug=${nowhere}": "debug cannot be read: ",
    "hydra.job.name=${nowhere} seed=-1": "Interpolation key 'nowhere' not found",  # the log is named by it
    # what a part is built of
    "runtime._target_=strategies.Adam": "runtime._target_=strategies.Adam is not a Runtime: choose",
    "strategy._target_=torch.nn.Linear": "strategy._target_=torch.nn.Linear is not a Strategy",
    "client.optimizer._target_=no.Such": "client.optimizer cannot be built with lr=0.05",
    "model.num_classes=-1": "model cannot be built with input_shape=[1, 8, 8], num_classes=-1",
    "dataset.load.split_seed=-1": "dataset.load cannot be built with ",
    "+strategy.foo=3": "foo=3",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("overrides", "message"), MISTAKES.items(), ids=[text[:60] for text in MISTAKES])
def test_is_told_in_one_line(
    overrides: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(*overrides.split(), f"hydra.run.dir={tmp_path / 'run'}") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.slow
def test_in_a_sweep_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Hydra prints a line of its own before what ended a job."""
    assert launch("-m", "nodes_per_round=50,51", f"hydra.sweep.dir={tmp_path}") == 2
    printed = capfd.readouterr().err.splitlines()
    assert [line.partition(" is out")[0] for line in printed] == [
        f"error: nodes_per_round={n}" for n in (50, 51)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        "client.max_grad_norm=1",
        "client.optimizer.lr=1 client=adam",
        "client.schedule={}",
        "seed=123456789012",
    ],
)
def test_what_is_meant_is_taken(overrides: str, tmp_path: Path) -> None:
    """A whole number for a number; an empty mapping, which is merged and changes nothing."""
    small = ["model=softmax", "num_nodes=2", "rounds=1", f"hydra.run.dir={tmp_path}"]
    assert launch(*overrides.split(), *small) == 0
