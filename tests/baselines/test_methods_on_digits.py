"""Every pair of parts runs on the digits, and the methods that need more than parts do too."""

import itertools
import shlex
from pathlib import Path

import pandas as pd
import pytest

from baselines.experiment import experiment
from baselines.runtimes import Inline

PARTS = {
    "mask": ["none", "and", "agreement"],
    "server_optimizer": ["identity", "momentum", "adam", "yogi", "adagrad"],
    "step_size": ["constant", "extrapolated"],
    "weighting": ["examples", "uniform", "effective_rank"],
}
CONVOLUTIONAL = {
    "model": "mlp",
    "model._target_": "helpers.tiny.Convolutional",
    "num_nodes": 3,
    "rounds": 2,
    "client.batch_size": 128,
}


def run(folder: Path, **overrides: object) -> pd.DataFrame:
    text = shlex.join(f"{key}={value}" for key, value in overrides.items())
    Inline().run(text, experiment.load(text).settings.num_nodes, folder)
    return pd.read_csv(folder / "metrics.csv")


def values(rows: pd.DataFrame, split: str, metric: str) -> pd.Series:
    return rows[(rows.split == split) & (rows.metric == metric)].set_index("round").value


# Each two options of two groups meet in one of fifteen runs.
CHOSEN = [
    {
        group: options[place % len(options)]
        for (group, options), place in zip(PARTS.items(), places, strict=True)
    }
    for places in ((i, j, i + j, i + j) for i in range(3) for j in range(5))
]


def test_each_two_options_meet() -> None:
    for one, other in itertools.combinations(PARTS, 2):
        met = {(chosen[one], chosen[other]) for chosen in CHOSEN}
        assert met == {*itertools.product(PARTS[one], PARTS[other])}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(chosen.values()))
def test_parts_run_together(chosen: dict[str, str], tmp_path: Path) -> None:
    rows = run(tmp_path, **CONVOLUTIONAL, **chosen)
    assert values(rows, "test", "loss").notna().all()
    assert values(rows, "train", "replies").tolist() == [3, 3]
    if chosen["step_size"] == "extrapolated":
        assert (values(rows, "train", "step_size") >= 1).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", ["fedprox", "scaffold", "fedavgm"])
def test_fedexp_goes_on_top(strategy: str, tmp_path: Path) -> None:
    rows = run(tmp_path, strategy=strategy, step_size="extrapolated", rounds=5)
    assert (values(rows, "train", "step_size") >= 1).all()
    assert (values(rows, "train", "step_size") > 1).any()
    loss = values(rows, "test", "loss")
    assert loss[5] < loss[0]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "scaffold", "fedadam", "fedyogi", "fedexp"])
def test_masking_goes_under_every_strategy(strategy: str, tmp_path: Path) -> None:
    masked = run(tmp_path / "masked", strategy=strategy, mask="agreement", rounds=3)
    open_ = run(tmp_path / "open", strategy=strategy, mask="agreement", rounds=3, **{"mask.tau": 0})
    plain = run(tmp_path / "plain", strategy=strategy, rounds=3)
    assert values(open_, "test", "loss").equals(values(plain, "test", "loss"))
    assert not values(masked, "test", "loss").equals(values(plain, "test", "loss"))


@pytest.mark.slow
def test_selective_finds_the_three_label_groups(tmp_path: Path) -> None:
    rows = run(
        tmp_path,
        strategy="selective",
        partitioner="label_groups",
        validation_size=300,
        num_nodes=9,
        rounds=7,
        **{"strategy.local_rounds": 6, "client.optimizer.lr": 0.2, "grouping.threshold": 0.15},
    )
    assert values(rows, "train", "groups")[7] == 3


@pytest.mark.slow
@pytest.mark.parametrize("client", ["adam", "adamp", "rmsgd"])
def test_every_client_optimizer_trains(client: str, tmp_path: Path) -> None:
    loss = values(run(tmp_path, client=client, rounds=3), "test", "loss")
    assert loss[3] < loss[0]


@pytest.mark.slow
def test_inverse_variance_asks_the_nodes_for_their_variance(tmp_path: Path) -> None:
    rows = run(tmp_path, weighting="inverse_variance", rounds=2)
    assert (values(rows, "train", "gradient_variance") > 0).all()
