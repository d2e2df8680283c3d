"""Predictions with a run's model: on raw rows, equal to the run's evaluation, and refused as at a site."""

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml  # type: ignore[import-untyped]
from flwr.app import ArrayRecord
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from baselines import predict, results
from baselines.engine import saved_model
from baselines.engine.predictor import Predictor
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.federation.__main__ import main as federation
from helpers.runs import curve, launch, played

COLUMNS = ["age", "glucose", "dose"]
KINDS = np.array(["mild", "none", "severe"])
SITES = ("north", "south", "west")


def frame(rows: int, seed: int) -> pd.DataFrame:
    """Return patients of three kinds, whose columns have means and deviations far apart."""
    draws = np.random.default_rng(seed)
    kind = draws.integers(3, size=rows)
    values = draws.normal(size=(rows, 3)) + 2 * np.eye(3)[kind]
    table = pd.DataFrame(values * [12, 2000, 0.01] + [50, 9000, 0.3], columns=COLUMNS)
    return table.assign(kind=KINDS[kind])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of three sites, and a new file, with and without labels."""
    folder = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(SITES):
        frame(90, seed).to_csv(folder / f"{name}.csv", index=False)
    new = frame(60, 9)
    new.to_csv(folder / "new.csv", index=False)
    new[["dose", "age", "glucose"]].to_csv(folder / "unlabelled.csv", index=False)
    schema = str(folder / "schema.yaml")
    assert federation(["schema", str(folder / "north.csv"), "--label", "kind", "--out", schema]) == 0
    sites = ",".join(f"{name}:'{folder / name}.csv'" for name in SITES)
    overrides = ["dataset=local", f"dataset.schema={schema}", "num_nodes=3", f"runtime.sites={{{sites}}}"]
    overrides += ["node_test_fraction=0.3", "node_timeout=0.2", "rounds=10", "client.optimizer.lr=0.2"]
    assert launch(*overrides, "save=last", f"data_root={folder}", f"hydra.run.dir={folder / 'run'}") == 0
    return folder


def experiment_of(folder: Path) -> list[str]:
    return [
        "dataset=local",
        f"dataset.schema={folder / 'schema.yaml'}",
        "num_nodes=3",
        "node_test_fraction=0.3",
    ]


def held_out(folder: Path, site: str) -> pd.DataFrame:
    """Return the raw rows that a site of the run has held out, in its order."""
    setup = saved_model.load_model(folder / "run").experiment
    trained = experiment.load(json.loads((folder / "run" / "environment.json").read_text())["overrides"])
    assert setup.settings.node_test_fraction == trained.settings.node_test_fraction
    rows = trained.site(site, str(folder / f"{site}.csv")).test.index
    return pd.read_csv(folder / f"{site}.csv").iloc[rows.tolist()]


def printed(out: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)


@pytest.mark.slow
def test_raw_rows_give_what_the_site_has_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bare network is no use on raw rows: it takes normalised ones."""
    rows = pd.read_csv(folder / "run" / "metrics.csv")
    last = rows[(rows["round"] == 10) & (rows.split == "site-test")].set_index(["model", "metric"]).value
    network = results.model(folder / "run")
    for site in SITES:
        raw = held_out(folder, site)
        raw.to_csv(tmp_path / "raw.csv", index=False)
        command = [str(folder / "run"), str(tmp_path / "raw.csv"), "--output", str(tmp_path / "out.csv")]
        assert predict.main(command) == 0
        output = printed(capsys.readouterr().out)
        assert output["accuracy"] == f"{last[site, 'accuracy']:.6g}"
        assert output["loss"] == f"{last[site, 'loss']:.6g}"
        written = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
        right = written.predicted.to_numpy() == raw.kind.to_numpy()
        assert right.mean() == last[site, "accuracy"]
        mild = raw.kind.to_numpy() == "mild"
        assert output["recall of mild"] == f"{right[mild].mean():.6g} ({right[mild].sum()} of {mild.sum()})"
        bare = network(torch.tensor(raw[COLUMNS].to_numpy(), dtype=torch.float32)).argmax(1)
        assert (KINDS[bare] == raw.kind).mean() < right.mean() - 0.2


@pytest.mark.slow
def test_a_site_measures_what_it_has_reported_on_the_rows_that_it_holds_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.read_csv(folder / "run" / "metrics.csv")
    last = rows[(rows["round"] == 10) & (rows.split == "site-test")].set_index(["model", "metric"]).value
    for site in SITES:
        file = tmp_path / f"{site}.csv"
        arguments = [
            "check",
            "--data",
            str(folder / f"{site}.csv"),
            "--site",
            site,
            "--held-out",
            str(file),
        ]
        assert federation([*arguments, *experiment_of(folder)]) == 0
        assert f"written: {file}, the {last[site, 'num_examples']:.0f} rows" in capsys.readouterr().out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        pd.testing.assert_frame_equal(pd.read_csv(file), held_out(folder, site).reset_index(drop=True))
        assert predict.main([str(folder / "run"), str(file)]) == 0
        output = printed(capsys.readouterr().out)
        assert output["accuracy"] == f"{last[site, 'accuracy']:.6g}"
        assert output["loss"] == f"{last[site, 'loss']:.6g}"
    assert len(list(tmp_path.iterdir())) == len(SITES)


def test_held_out_pictures_are_an_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(12):
        (tmp_path / "data" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.full((8, 8), 20 * k, np.uint8))
        picture.save(tmp_path / "data" / "ab"[k % 2] / f"{k}.png")
    data, schema = str(tmp_path / "data"), str(tmp_path / "schema.yaml")
    assert federation(["schema", data, "--out", schema]) == 0
    arguments = [
        "check",
        "--data",
        data,
        "dataset=local",
        f"dataset.schema={schema}",
        "node_test_fraction=0.5",
    ]
    for site, file, line in (
        ([], "rows.npz", "--held-out: give the site's name"),
        (["--site", "a"], "rows.csv", "expected a .npz file"),
        (["--site", "a"], "data/rows.npz", "lies in the data"),
        (["--site", "a", "node_test_fraction=0.01"], "rows.npz", "holds no row out"),
        (["--site", "a"], "nowhere/rows.npz", "there is no folder"),
    ):
        assert federation([*arguments, *site, "--held-out", str(tmp_path / file)]) == 2
        assert line in capsys.readouterr().err
    assert federation([*arguments, "--site", "a", "--held-out", str(tmp_path / "rows.npz")]) == 0
    with np.load(tmp_path / "rows.npz") as arrays:
        assert arrays["inputs"].shape == (6, 1, 8, 8)
        assert arrays["inputs"].dtype == np.uint8
        assert ["ab"[int(value) // 20 % 2] for value in arrays["inputs"][:, 0, 0, 0]] == [
            *arrays["targets"]
        ]


@pytest.mark.slow
def test_labels_may_be_missing_and_columns_in_any_order(folder: Path, tmp_path: Path) -> None:
    for name in ("new", "unlabelled"):
        output = ["--output", str(tmp_path / f"{name}.csv")]
        assert predict.main([str(folder / "run"), str(folder / f"{name}.csv"), *output]) == 0
    assert (tmp_path / "new.csv").read_bytes() == (tmp_path / "unlabelled.csv").read_bytes()
    table = pd.read_csv(tmp_path / "new.csv", keep_default_na=False)
    shares = [f"probability of {kind}" for kind in KINDS]
    assert list(table) == ["row", "predicted", *shares]
    assert table.row.tolist() == list(range(1, 61))
    np.testing.assert_allclose(table[shares].sum(axis=1), 1, rtol=1e-6)
    assert (KINDS[table[shares].to_numpy().argmax(1)] == table.predicted).all()


@pytest.mark.slow
def test_rows_with_a_label_are_measured_and_without_output_nothing_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, rows = pd.read_csv(folder / "new.csv"), tmp_path / "rows.csv"
    outputs = []
    for part in (table[:40], table.assign(kind=table.kind.where(table.index < 40, " "))):
        part.to_csv(rows, index=False)
        assert predict.main([str(folder / "run"), str(rows)]) == 0
        outputs.append(printed(capsys.readouterr().out))
    assert list(tmp_path.iterdir()) == [rows]
    assert outputs[1].pop("measured") == "40 of 60 rows, those with a label"
    assert outputs[0] == outputs[1]
    assert "accuracy" in outputs[0]
    written = {name: ["--output", str(tmp_path / f"{name}.out")] for name in ("rows", "new")}
    assert predict.main([str(folder / "run"), str(rows), *written["rows"]]) == 0
    assert predict.main([str(folder / "run"), str(folder / "new.csv"), *written["new"]]) == 0
    assert (tmp_path / "rows.out").read_bytes() == (tmp_path / "new.out").read_bytes()
    table.assign(kind="").to_csv(rows, index=False)  # as a form that nobody has filled in
    assert predict.main([str(folder / "run"), str(rows)]) == 2
    assert "no labels to measure with" in capsys.readouterr().err


@pytest.mark.slow
def test_the_predictor_takes_a_table_an_array_and_a_tensor(folder: Path) -> None:
    classify = results.predictor(folder / "run")
    table = pd.read_csv(folder / "new.csv")
    wanted = classify(table)
    array = table[COLUMNS].to_numpy()
    for rows in (table[["kind", "dose", "age", "glucose"]], array, torch.from_numpy(array)):
        assert classify(rows).classes == wanted.classes
        np.testing.assert_array_equal(classify(rows).probabilities, wanted.probabilities)
    assert classify.classes == tuple(KINDS)
    assert (np.array(wanted.classes) == table.kind).mean() > 0.6
    tensor = torch.from_numpy(array).float()
    classify(tensor)
    assert torch.equal(tensor, torch.from_numpy(array).float())  # the caller's rows are left as they are


@pytest.mark.slow
def test_the_predictor_refuses_rows_that_do_not_fit(folder: Path) -> None:
    classify, table = results.predictor(folder / "run"), pd.read_csv(folder / "new.csv")
    refused = [
        (table.drop(columns="dose"), "has no column 'dose'"),
        (table.assign(dose="high"), "column 'dose' holds"),
        (table.assign(dose=np.nan), "NaN or infinite"),
        (table[COLUMNS].to_numpy()[0], "shape [3]"),
        (table[COLUMNS].to_numpy()[:, :2], "shape [60, 2]"),
        (table[COLUMNS].to_numpy()[:0], "no rows"),
        (np.array([["a", "b", "c"]]), "expected numbers"),
    ]
    for rows, message in refused:
        with pytest.raises(UserError) as error:
            classify(rows)
        assert message in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["unlabelled.csv"], "no labels to measure with: give --output"),
        (["missing.csv"], "has no column 'dose': it has ['age', 'glucose', 'kind']"),
        (["--output", "out.csv", "--export", "model.pt"], "go together"),
        (["new.csv", "--output", "new.csv"], "is the data"),
        (["new.csv", "--output", "nowhere/out.csv"], "no folder"),
        (["new.csv", "--output", "out.csv", "--model", "x"], "no model x"),
        (["--export", "model.h5"], ".onnx or .pt"),
        (["--export", "nowhere/model.pt"], "no folder"),
        (["nowhere.csv", "--output", "out.csv"], "no data"),
        (["schema.yaml", "--output", "out.csv"], "is not a table"),
        (["strange.csv", "--output", "out.csv"], "not in the schema"),
        (["missing.csv", "--output", "out.csv"], "no column"),
    ],
)
def test_a_mistake_has_one_line(
    arguments: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    frame(3, 0).assign(kind="unheard of").to_csv("strange.csv", index=False)
    frame(3, 0).drop(columns="dose").to_csv("missing.csv", index=False)
    before = Path("new.csv").read_bytes()
    assert predict.main(["run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert Path("new.csv").read_bytes() == before
    assert not Path("out.csv").exists()


def test_a_folder_that_holds_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main([str(tmp_path), "new.csv", "--output", str(tmp_path / "out.csv")]) == 2
    assert "no config.yaml" in capsys.readouterr().err


SETTING = "num_nodes=3 rounds=2 model=mlp save=last evaluation.per_class=true"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run on the digits, and their raw test set beside it."""
    folder = tmp_path_factory.mktemp("digits")
    played(SETTING, folder / "run")
    data = experiment.load(SETTING).dataset
    np.savez(folder / "test.npz", inputs=data.test_inputs.numpy(), targets=data.test_targets.numpy())  # type: ignore[union-attr]
    return folder


@pytest.mark.slow
def test_a_built_in_data_set_needs_nothing_but_the_run(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise AssertionError("the data set is not here")

    monkeypatch.setattr("baselines.experiment.experiment.dataset_of", unreachable)
    for variable in ("HOME", "XDG_CACHE_HOME", "FLORILEGIUM_DATA"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    command = [str(digits / "run"), str(digits / "test.npz"), "--output", str(tmp_path / "out.csv")]
    assert predict.main(command) == 0
    assert not list((tmp_path / "home").rglob("*.npz"))
    output = printed(capsys.readouterr().out)
    rows = pd.read_csv(digits / "run" / "metrics.csv")
    assert output["accuracy"] == f"{curve(rows, 'test', 'accuracy')[-1]:.6g}"
    assert output["loss"] == f"{curve(rows, 'test', 'loss')[-1]:.6g}"
    recall = pd.read_csv(digits / "run" / "per_class.csv").set_index("class").accuracy
    assert all(output[f"recall of {k}"].startswith(f"{recall[k]:.6g} (") for k in range(10))


@pytest.mark.slow
def test_scaled_images_are_refused(digits: Path) -> None:
    """A model of bytes 0 to 16 would take zeros and ones for darkness, and say something all the same."""
    inputs = np.load(digits / "test.npz")["inputs"]
    classify = results.predictor(digits / "run")
    assert classify(inputs).num_diverged == 0
    with pytest.raises(UserError, match="expected uint8"):
        classify(inputs / 16)
    with pytest.raises(UserError, match="takes no table"):
        classify(pd.DataFrame({"a": [1]}))


@pytest.mark.slow
def test_images_are_classified_by_file_with_and_without_folders_of_classes(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(digits / "test.npz") as arrays:
        inputs, targets = arrays["inputs"][:12], arrays["targets"][:12]
    for k, (picture, label) in enumerate(zip(inputs, targets, strict=True)):
        for place in (tmp_path / "flat", tmp_path / "classes" / str(label)):
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture[0]).save(place / f"{k:02}.png")
    with pytest.raises(UserError, match="not in the schema's classes"):
        results.predictor(digits / "run").read(_renamed(tmp_path / "classes", str(targets[0])))
    wanted = results.predictor(digits / "run")(inputs)
    for name in ("flat", "classes"):
        command = [str(digits / "run"), str(tmp_path / name), "--output", str(tmp_path / "out.csv")]
        assert predict.main(command) == 0
        written = pd.read_csv(tmp_path / "out.csv", dtype=str).set_index("file").predicted
        places = [k if name == "flat" else f"{targets[int(k)]}/{k}" for k in (f"{k:02}" for k in range(12))]
        assert [written[f"{place}.png"] for place in places] == wanted.classes
        assert ("accuracy" in printed(capsys.readouterr().out)) == (name == "classes")


def _renamed(folder: Path, label: str) -> Path:
    """Return a folder of images of which one class is called by a name that there is none of."""
    copy = folder.with_name("renamed")
    (copy / "eleven").mkdir(parents=True)
    for file in (folder / label).iterdir():
        (copy / "eleven" / file.name).write_bytes(file.read_bytes())
    return copy


def rewritten(run: Path, target: Path, **changed: torch.Tensor) -> Path:
    """Return a copy of a run whose model has other weights."""
    target.mkdir()
    (target / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    with safe_open(run / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    weights = load_file(run / "model.safetensors") | changed
    save_file(weights, target / "model.safetensors", metadata=metadata)
    return target


@pytest.mark.slow
def test_a_diverged_model_is_refused_and_never_class_0(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nan = torch.full_like(load_file(folder / "run" / "model.safetensors")["out.bias"], torch.nan)
    run = rewritten(folder / "run", tmp_path / "run", **{"out.bias": nan})
    output = tmp_path / "out.csv"
    assert predict.main([str(run), str(folder / "new.csv"), "--output", str(output)]) == 2
    assert "not finite" in capsys.readouterr().err
    assert not output.exists()
    assert predict.main([str(run), "--export", str(tmp_path / "model.pt")]) == 2
    assert not (tmp_path / "model.pt").exists()
    assert results.predictor(run)(pd.read_csv(folder / "new.csv")).classes == [None] * 60


@pytest.mark.slow
def test_rows_without_a_finite_output_are_marked_and_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = frame(4, 3)
    raw.loc[1, "glucose"] = 3e38  # finite, and beyond float32 in the network
    raw.to_csv(tmp_path / "raw.csv", index=False)
    output = tmp_path / "out.csv"
    large = load_file(folder / "run" / "model.safetensors")["hidden.weight"] * 1e6
    run = rewritten(folder / "run", tmp_path / "run", **{"hidden.weight": large})
    assert predict.main([str(run), str(tmp_path / "raw.csv"), "--output", str(output)]) == 0
    text = printed(capsys.readouterr().out)
    assert text["without a prediction"].startswith("1 of 4 rows")
    assert {text["accuracy"], text["loss"]} == {"nan"}
    assert all(value.startswith("nan (nan of ") for name, value in text.items() if "recall" in name)
    written = pd.read_csv(output, keep_default_na=False, dtype=str)
    assert written.iloc[1].tolist() == ["2", "", "", "", ""]
    assert (written.predicted != "").sum() == 3


@pytest.mark.slow
def test_one_of_several_models_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played("strategy=local num_nodes=3 rounds=1 model=softmax save=last", tmp_path / "run")
    data = experiment.load("num_nodes=3").dataset
    np.savez(tmp_path / "some.npz", inputs=data.test_inputs[:20].numpy())  # type: ignore[index]
    command = [str(tmp_path / "run"), str(tmp_path / "some.npz"), "--output", str(tmp_path / "out.csv")]
    assert predict.main(command) == 2
    assert "node0, node1, node2" in capsys.readouterr().err
    chosen = []
    for name in ("node0", "node1"):
        assert predict.main([*command, "--model", name]) == 0
        chosen.append((tmp_path / "out.csv").read_bytes())
        network = results.model(tmp_path / "run", name)
        assert results.predictor(tmp_path / "run", name).model.network.state_dict().keys() == (
            network.state_dict().keys()
        )
    assert chosen[0] != chosen[1]


@pytest.mark.slow
def test_what_is_no_classification_has_no_predictor(tmp_path: Path) -> None:
    played("dataset=synthetic model=linear num_nodes=20 rounds=1 save=last partitioner=by_writer", tmp_path)
    assert results.model(tmp_path) is not None
    with pytest.raises(UserError, match="only classification has a predictor"):
        results.predictor(tmp_path)


@pytest.mark.slow
def test_a_checkpoint_asks_the_configuration(digits: Path, tmp_path: Path) -> None:
    inputs = np.load(digits / "test.npz")["inputs"]
    wanted = results.predictor(digits / "run")(inputs).probabilities
    played(SETTING.replace("save=last", "checkpoint_every=2"), tmp_path / "checkpoint")
    np.testing.assert_array_equal(results.predictor(tmp_path / "checkpoint")(inputs).probabilities, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["dataset", "model", "seed", "threads"])
def test_a_configuration_that_lacks_a_setting_is_refused(lost: str, digits: Path, tmp_path: Path) -> None:
    run = rewritten(digits / "run", tmp_path / "run")
    settings = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({k: v for k, v in settings.items() if k != lost}))
    with pytest.raises(UserError, match=lost):
        results.predictor(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": {"dtype": "load", "normalize": None}},
        {"inputs": None},
        {"network": {"input_shape": "x", "num_classes": 10, "config": {}}},
        {"schema": {"classes": ["a", "b"]}},
    ],
)
def test_damaged_metadata_are_refused_in_one_line(
    changed: dict[str, object], digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rewritten(digits / "run", tmp_path / "run")
    path = run / "model.safetensors"
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["florilegium"]) | changed
    save_file(load_file(path), path, metadata={"florilegium": json.dumps(about)})
    command = [str(run), str(digits / "test.npz"), "--output", str(tmp_path / "out.csv")]
    assert predict.main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_a_models_file_names_no_code_to_run(digits: Path, tmp_path: Path) -> None:
    """The class is the one of config.yaml; the same key in the metadata is for other readers."""
    run = rewritten(digits / "run", tmp_path / "run")
    path = run / "model.safetensors"
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["florilegium"])
    about["network"]["config"]["_target_"] = "os.system"
    save_file(load_file(path), path, metadata={"florilegium": json.dumps(about)})
    assert isinstance(results.predictor(run), Predictor)
    keeper = saved_model.ModelSaver(run, "last", about)  # weights of another model than config.yaml's
    keeper.end(1, {"global": ArrayRecord({"w": torch.ones(2)})}, {"loss": 1.0})
    with pytest.raises(UserError, match=r"config.yaml and the model do not belong"):
        results.predictor(run)
