"""Strategies that are not ours: Flower's own, its differential privacy around one of ours, and a user's."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.runs import curve, launch, metrics_in

FAILING = """from clients import LocalTraining

class Failing(LocalTraining):
    def __call__(self, *arguments, **options):
        raise RuntimeError("disk full")

class Fickle(LocalTraining):
    def __call__(self, *arguments, server_round, **options):
        if server_round % 2:
            raise RuntimeError("disk full")
        return super().__call__(*arguments, server_round=server_round, **options)
"""
PRIVATE = """_target_: flwr.serverapp.strategy.DifferentialPrivacy{kind}
strategy: {{_target_: strategies.FedAvg, num_nodes: "${{num_nodes}}"}}
noise_multiplier: 0.01
num_sampled_clients: "${{num_nodes}}"
{clipping}: 1.0
"""
STOCK = "_target_: flwr.serverapp.strategy.FedAvg\n"
STRATEGIES = {
    "DifferentialPrivacyServerSideFixedClipping": PRIVATE.format(
        kind="ServerSideFixedClipping", clipping="clipping_norm"
    ),
    "DifferentialPrivacyServerSideAdaptiveClipping": PRIVATE.format(
        kind="ServerSideAdaptiveClipping", clipping="initial_clipping_norm"
    ),
    "FedAvg": STOCK,
    "FedAdam": STOCK.replace("FedAvg", "FedAdam"),
    "QFedAvg": STOCK.replace("FedAvg", "QFedAvg") + "client_learning_rate: 0.05\nq: 0.2\n",
    "FedMedian": STOCK.replace("FedAvg", "FedMedian"),
}


UNCLIPPED = {
    f"DifferentialPrivacyClientSide{kind}": PRIVATE.format(kind=f"ClientSide{kind}", clipping=clipping)
    for kind, clipping in (
        ("FixedClipping", "clipping_norm"),
        ("AdaptiveClipping", "initial_clipping_norm"),
    )
}
UNCOVERED = {  # what stands in the place of FedAvg, and what of it the noise of a mean does not cover
    "fedexp": ("_target_: strategies.FedExP", "step_size=Extrapolated of FedExP"),
    "adam": ("_target_: strategies.FedAdam", "server_optimizer=Adam of FedAdam"),
    "scaffold": ("_target_: strategies.Scaffold", "the rule of Scaffold"),
    "local": (
        "_target_: strategies.LocalOnly, inner: {_target_: strategies.FedAvg}",
        "the models of LocalOnly",
    ),
}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of options: the strategies, and clients that fail."""
    folder = tmp_path / "options"
    for group in ("strategy", "client"):
        (folder / group).mkdir(parents=True)
    (tmp_path / "ann_clients.py").write_text(FAILING)
    for name, yaml in {**STRATEGIES, **UNCLIPPED}.items():
        (folder / "strategy" / f"{name}.yaml").write_text(yaml)
    for name in ("Failing", "Fickle"):
        (folder / "client" / f"{name}.yaml").write_text(
            f"defaults: [sgd, _self_]\n_target_: ann_clients.{name}\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def run(options: Path, strategy: str, client: str, rounds: int = 4) -> int:
    setting = (f"strategy={strategy}", f"client={client}", f"rounds={rounds}", "num_nodes=2")
    return launch("--config-dir", str(options), *setting, f"hydra.run.dir={options.parent / 'run'}")


@pytest.mark.slow
def test_the_nodes_that_it_samples_depend_on_the_seed(options: Path, tmp_path: Path) -> None:
    """Flower samples with ``random``, which nobody else here draws from, and which is left as it was."""
    (options / "strategy" / "half.yaml").write_text(STOCK + "fraction_train: 0.5\nfraction_evaluate: 0.5\n")
    samples = {}
    for name, seed in (("once", 0), ("again", 0), ("other", 1)):
        random.seed(name)
        before = random.getstate()
        setting = f"strategy=half num_nodes=6 rounds=3 node_test_fraction=0.2 seed={seed}"
        folder = f"hydra.run.dir={tmp_path / name}"
        assert launch("--config-dir", str(options), *setting.split(), folder) == 0
        assert random.getstate() == before
        samples[name] = metrics_in(tmp_path / name)
    assert samples["once"].equals(samples["again"])
    assert "partition_id" not in set(samples["once"].metric)  # a mean of ids
    assert not samples["once"].equals(samples["other"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_whose_nodes_all_fail_has_failed(
    strategy: str, options: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options, strategy, "Failing") == 1
    status = json.loads((options.parent / "run" / "environment.json").read_text())["status"]
    assert status == (
        f"failed: 3 rounds in a row failed: {strategy} produced no model from 2 replies (errors in the last: "
        "RuntimeError: disk full); look at the nodes"
    )
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_short_run_without_any_step_has_failed_too(options: Path) -> None:
    assert run(options, "FedAvg", "Failing", rounds=1) == 1


@pytest.mark.slow
def test_failed_rounds_that_are_not_in_a_row_end_nothing(options: Path) -> None:
    assert run(options, "DifferentialPrivacyServerSideFixedClipping", "Fickle", rounds=6) == 0
    losses = curve(metrics_in(options.parent / "run"), "test", "loss")
    stood = [before == after for before, after in pairwise(losses)]
    assert stood == [True, False] * 3


@pytest.mark.slow
@pytest.mark.parametrize("value", ["0", "abc", "2.5", "null"])
def test_how_many_is_a_count_for_them_too(
    value: str, options: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"hydra.run.dir={options.parent / 'run'}"
    named = ("strategy=FedAvg", f"max_failed_rounds={value}", "rounds=1")
    assert launch("--config-dir", str(options), *named, folder) == 2
    assert "error: max_failed_rounds=" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("strategy", UNCLIPPED)
def test_clipping_that_no_node_would_do_is_refused(
    strategy: str, options: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("--config-dir", str(options), f"strategy={strategy}", "rounds=1", "num_nodes=2") == 2
    assert f"error: {strategy} leaves the clipping to a mod that this suite's nodes do not have" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        "nodes_per_round=1",
        "aggregation=median",
        "weighting=uniform",
        "mask=agreement",
        "participation.dropout=0.5",
        "seed=3",
        "num_nodes=3",
    ],
)
def test_a_strategy_of_ones_own_whose_file_leaves_settings_out_is_refused(
    setting: str, options: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (options / "strategy" / "bare.yaml").write_text("_target_: strategies.FedAvg\n")
    folder = f"hydra.run.dir={options.parent / 'run'}"
    assert launch("--config-dir", str(options), "strategy=bare", setting, folder) == 2
    key = setting.partition("=")[0].removesuffix(".dropout")
    lost = "weighting, aggregation" if key == "aggregation" else key  # the median brings its weighting
    assert capsys.readouterr().err == (
        f"error: strategy FedAvg is not given {lost}: begin its file with defaults: [base]\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("file", ["defaults: [base]\n", "seed: 7\nnum_nodes: ${num_nodes}\n"])
def test_what_its_file_takes_or_states_itself_is_not(file: str, options: Path) -> None:
    (options / "strategy" / "taking.yaml").write_text(f"{file}_target_: strategies.FedAvg\n")
    setting = "strategy=taking seed=3 num_nodes=2 rounds=1 model=softmax"
    folder = f"hydra.run.dir={options.parent / 'run'}"
    assert launch("--config-dir", str(options), *setting.split(), folder) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ServerSideFixedClipping", "ServerSideAdaptiveClipping"])
@pytest.mark.parametrize("name", UNCOVERED)
def test_noise_that_does_not_cover_the_step_is_refused(
    name: str, kind: str, options: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner, beyond = UNCOVERED[name]
    wrapped = STRATEGIES[f"DifferentialPrivacy{kind}"].replace(
        "_target_: strategies.FedAvg, ", f"{inner}, "
    )
    wrapped = wrapped.replace(', num_nodes: "${num_nodes}"', "") if name == "local" else wrapped
    (options / "strategy" / "wrapped.yaml").write_text(wrapped)
    assert launch("--config-dir", str(options), "strategy=wrapped", "rounds=1", "num_nodes=2") == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: DifferentialPrivacy{kind} adds the noise of a mean, which does not cover {beyond}: let it wrap "
        "strategies.FedAvg, or choose strategy=fedavg privacy=central"
    ]
