"""The model that a run keeps."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, Message
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from baselines import results
from baselines.engine import saved_model
from baselines.engine.saved_model import METADATA_KEY, ModelSaver
from baselines.errors import UserError
from baselines.experiment import experiment
from clients.evaluation import evaluate
from helpers.runs import App, curve, launch, played

SETTING = "num_nodes=3 rounds=3 model=mlp client.optimizer.lr=1.0"  # so high that the last is worse


def accuracy(folder: Path, overrides: str = SETTING, name: str | None = None) -> float:
    setup = experiment.load(overrides)
    return evaluate(results.model(folder, name), setup.test_examples, setup.dataset.task)["accuracy"]


def read_metadata(file: Any) -> dict[str, str]:
    metadata: dict[str, str] = json.loads(file.metadata()["florilegium"])
    return metadata


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["last", "best"])
def test_the_kept_model_does_as_well_as_metrics_csv_says(how: str, tmp_path: Path) -> None:
    measured = curve(played(f"{SETTING} save={how}", tmp_path), "test", "accuracy")
    assert max(measured) > measured[-1]
    assert accuracy(tmp_path) == (max(measured) if how == "best" else measured[-1])
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        best = measured.index(max(measured))
        assert read_metadata(file)["round"] == str(best if how == "best" else 3)


@pytest.mark.slow
def test_a_file_says_what_its_model_takes_and_of_which_run_it_is(tmp_path: Path) -> None:
    setting = f"{SETTING} save=last rounds=1"
    played(setting, tmp_path)
    setup = experiment.load(setting)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        about: dict[str, Any] = read_metadata(file)
    assert about["identity"] == setup.identity()
    assert about["task"] == "Classification"
    assert about["network"]["config"]["_target_"] == "baselines.models.Mlp"
    assert about["network"]["input_shape"] == [1, 8, 8]
    assert about["network"]["num_classes"] == 10
    normalize = {"mean": [0.3053], "std": [0.376], "scale": 16.0}
    assert about["inputs"] == {"dtype": "uint8", "normalize": normalize}
    assert "schema" not in about


@pytest.mark.slow
def test_equal_runs_are_equal_files(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        played(f"{SETTING} save=best rounds=1", tmp_path / name)
        hashes.add(sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())
    assert len(hashes) == 1


@pytest.mark.slow
def test_each_of_several_files_says_it(tmp_path: Path) -> None:
    played("strategy=local num_nodes=3 rounds=1 model=softmax save=last", tmp_path)
    described = saved_model.descriptions(tmp_path)
    assert list(described) == ["node0", "node1", "node2"]
    assert sorted(path.stem for path in (tmp_path / "models").iterdir()) == ["node0", "node1", "node2"]
    assert all(about["network"]["num_classes"] == 10 for about in described.values())
    assert {about["size"] for about in described.values()} == {650}


@pytest.mark.slow
def test_a_resumed_run_keeps_the_best_of_all_its_rounds(tmp_path: Path) -> None:
    def interrupted_in_round_3(app: App) -> App:
        def interrupted(message: Message, context: Context) -> Message:
            if message.metadata.message_type == "train":
                rounds.append(int(message.content.config_records["config"]["server-round"]))  # type: ignore[arg-type]
                if rounds[-1] == 3:
                    raise KeyboardInterrupt
            return app(message, context)

        rounds: list[int] = []
        return interrupted

    setting = f"{SETTING} save=best checkpoint_every=2 resume=true"
    with pytest.raises(KeyboardInterrupt):
        played(setting, tmp_path / "one", interrupted_in_round_3)
    played(setting, tmp_path / "one")
    played(setting, tmp_path / "whole")
    with (
        safe_open(tmp_path / "one" / "model.safetensors", "pt") as one,
        safe_open(tmp_path / "whole" / "model.safetensors", "pt") as whole,
    ):
        assert one.metadata() == whole.metadata()
        assert all(torch.equal(one.get_tensor(name), whole.get_tensor(name)) for name in whole.keys())  # noqa: SIM118 - no mapping


@pytest.mark.slow
@pytest.mark.parametrize("how", ["last", "best"])
def test_without_a_test_set_the_nodes_judge_it(how: str, tmp_path: Path) -> None:
    setting = f"{SETTING} client.optimizer.lr=2 seed=1 central_test=none node_test_fraction=0.2 save={how}"
    measured = curve(played(setting, tmp_path), "node-test", "accuracy")  # of rounds 1 to 3
    assert max(measured) > measured[-1]
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        kept = read_metadata(file)
    assert kept["round"] == str(1 + measured.index(max(measured)) if how == "best" else 3)
    assert float(kept["value"]) == (max(measured) if how == "best" else measured[-1])


@pytest.mark.slow
def test_a_finished_run_says_that_it_has_kept_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*SETTING.split(), "rounds=1", "resume=true", f"hydra.run.dir={tmp_path}"]
    for how, is_kept in (("null", False), ("null", False), ("last", True)):
        assert launch(*arguments, f"save={how}") == 0
        assert (
            "(it ran without save=last: to have that, resume=false)" in capsys.readouterr().out
        ) == is_kept


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    hashes = set()
    for _ in range(20):
        ModelSaver(tmp_path, "last").end(1, {"a": ArrayRecord({"w": torch.ones(2)})}, {"loss": 1.0})
        hashes.add(sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_a_file_is_written_over_only_by_a_better_model(tmp_path: Path) -> None:
    older = {METADATA_KEY: json.dumps({"round": "1", "value": "0.5", "model": "global"})}
    save_file({"w": torch.zeros(2)}, tmp_path / "model.safetensors", metadata=older)
    keeper = ModelSaver(tmp_path, "best")
    keeper.offer(2, {"global": ArrayRecord({"w": torch.ones(2)})}, {"accuracy": 0.4})
    assert not load_file(tmp_path / "model.safetensors")["w"].any()
    keeper.offer(3, {"global": ArrayRecord({"w": torch.ones(2)})}, {"accuracy": 0.6})
    assert load_file(tmp_path / "model.safetensors")["w"].all()


class Killed(BaseException):
    """The process has ended here."""


def test_a_kill_while_several_are_written_leaves_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def models(value: float) -> dict[str, ArrayRecord]:
        return {name: ArrayRecord({"w": torch.full((2,), value)}) for name in "abc"}

    def third(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        if path.stem == "c":
            raise Killed
        save_file(tensors, path, metadata=metadata)

    keeper = ModelSaver(tmp_path, "best")
    keeper.offer(1, models(1.0), {"accuracy": 0.5})
    monkeypatch.setattr("baselines.engine.saved_model.save_file", third)
    with pytest.raises(Killed):
        keeper.offer(2, models(2.0), {"accuracy": 0.7})
    actual = [load_file(path)["w"][0].item() for path in sorted((tmp_path / "models").iterdir())]
    assert actual == [1.0] * 3
    monkeypatch.undo()
    keeper.offer(2, models(2.0), {"accuracy": 0.7})  # as the resumed run does
    actual = [load_file(path)["w"][0].item() for path in sorted((tmp_path / "models").iterdir())]
    assert actual == [2.0] * 3


def test_a_model_of_any_name_has_a_file(tmp_path: Path) -> None:
    names = ["../up", "a b", "node10", "node2"]
    models = {name: ArrayRecord({"w": torch.full((1,), float(k))}) for k, name in enumerate(names)}
    saved_model.ModelSaver(tmp_path, "last").end(1, models, {"loss": 1.0})
    described = saved_model.descriptions(tmp_path)
    assert list(described) == ["../up", "a b", "node2", "node10"]
    assert all(path.parent == tmp_path / "models" for path in tmp_path.rglob("*.safetensors"))


@pytest.mark.slow
def test_of_several_models_one_is_named(tmp_path: Path) -> None:
    """A group's model is asked for by its name; the single one from before there were groups is gone."""
    setting = "strategy=local num_nodes=3 rounds=1 model=softmax"
    rows = played(f"{setting} save=best", tmp_path)
    with pytest.raises(UserError, match="has 3 models: name one of node0, node1, node2"):
        results.model(tmp_path)
    with pytest.raises(UserError, match="has no model node3"):
        results.model(tmp_path, "node3")
    measured = rows[(rows.split == "test") & (rows.model == "node1")]
    assert accuracy(tmp_path, setting, "node1") in curve(measured, "test", "accuracy")
    keeper = ModelSaver(tmp_path, "last")
    keeper.end(1, {"global": ArrayRecord({"w": torch.ones(2)})}, {"loss": 1.0})
    assert not (tmp_path / "models").exists()


def test_a_loss_counts_where_there_is_no_accuracy_and_no_number_is_worst(tmp_path: Path) -> None:
    keeper = ModelSaver(tmp_path, "best")
    for place, loss in enumerate((float("nan"), 3.0, 1.0, float("nan"), 2.0)):
        keeper.offer(place, {"global": ArrayRecord({"w": torch.full((2,), float(place))})}, {"loss": loss})
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.get_tensor("w").tolist() == [2.0, 2.0]


@pytest.mark.slow
def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    played(f"{SETTING} save=last rounds=1", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no model")
    with pytest.raises(UserError, match=r"model.safetensors is damaged"):
        results.model(tmp_path)


@pytest.mark.slow
def test_a_run_that_starts_again_does_not_leave_an_older_model(tmp_path: Path) -> None:
    played(f"{SETTING} save=last rounds=1", tmp_path)
    played(f"{SETTING} rounds=1 resume=false", tmp_path)
    with pytest.raises(UserError, match="run it with save=last or save=best"):
        results.model(tmp_path)


@pytest.mark.slow
def test_a_run_that_goes_on_without_keeping_a_model_has_its_last_one(tmp_path: Path) -> None:
    played(f"{SETTING} save=last checkpoint_every=1", tmp_path)
    longer = f"{SETTING.replace('rounds=3', 'rounds=5')} checkpoint_every=1 resume=true"
    measured = curve(played(longer, tmp_path), "test", "accuracy")
    assert len(measured) == 6
    assert accuracy(tmp_path) == measured[-1] != measured[3]


@pytest.mark.slow
def test_the_best_of_a_run_that_goes_on_may_be_the_round_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(saved_model.logger, "warning", lambda text, *parts: warnings.append(text % parts))
    before = curve(played(f"{SETTING} checkpoint_every=1", tmp_path), "test", "accuracy")
    longer = f"{SETTING.replace('rounds=3', 'rounds=5')} checkpoint_every=1 resume=true save=best"
    measured = curve(played(longer, tmp_path), "test", "accuracy")
    assert measured[:4] == before
    assert accuracy(tmp_path) == max(measured[3:])
    assert len(warnings) == 1
    assert warnings[0].startswith("save=best: no model of the rounds before 3 was kept: the best is chosen")
