"""Which runs are one setting."""

from pathlib import Path

import pytest

from baselines import results
from helpers.runs import launch, write_run


def test_what_decides_no_number_makes_no_other_setting(tmp_path: Path) -> None:
    beside = "resume=true checkpoint_every=2 data_root=/a 'hydra.searchpath=[/mine]' logger.mlflow.uri=/"
    write_run(tmp_path / "0", "mask=and seed=0", 0, [0.1], "finished")
    write_run(tmp_path / "1", f"mask=and seed=1 {beside}", 1, [0.1], "finished")
    write_run(tmp_path / "2", "seed=2", 2, [0.1], "finished")
    seeds = {label: set(rows.seed) for label, rows in results.load(tmp_path).groupby("setting")}
    assert seeds == {"mask=and": {0, 1}, "mask=none": {2}}


@pytest.mark.slow
def test_a_value_written_in_another_way_makes_no_other_setting(tmp_path: Path) -> None:
    for place, written in enumerate(("0.01", "1e-2")):
        choices = ["client.optimizer.lr=" + written, f"seed={place}", "rounds=1", "num_nodes=2"]
        assert launch(*choices, "model=softmax", f"hydra.run.dir={tmp_path}/{place}") == 0
    rows = results.load(tmp_path)
    assert (set(rows.setting), set(rows.seed)) == ({"all"}, {0, 1})


@pytest.mark.slow
def test_an_options_file_that_has_changed_makes_another_setting(tmp_path: Path) -> None:
    """The overrides are the same; what differs is named, and neither is the other's second seed."""
    mine = tmp_path / "mine" / "client" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    for place, rate in enumerate((0.01, 0.1, 0.1)):
        mine.write_text(f"defaults: [sgd]\noptimizer: {{lr: {rate}}}\n")
        choices = ["client=mine", f"seed={place}", "rounds=1", "num_nodes=2", "model=softmax"]
        own = f"hydra.run.dir={tmp_path}/{place}"
        assert launch("--config-dir", str(mine.parents[1]), *choices, own) == 0
    seeds = {label: set(rows.seed) for label, rows in results.load(tmp_path).groupby("setting")}
    assert seeds == {"client.optimizer.lr=0.01": {0}, "client.optimizer.lr=0.1": {1, 2}}
