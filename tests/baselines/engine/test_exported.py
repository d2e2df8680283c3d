"""Exported models: raw rows in, the predictor's probabilities out, in another library."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from baselines import predict, results
from baselines.engine import exported
from baselines.engine.predictor import Predictor
from baselines.errors import UserError
from helpers.runs import launch, played

MISSING = [name for name in exported.LIBRARIES if importlib.util.find_spec(name) is None]
ONNX = pytest.param(
    ".onnx",
    marks=pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed: pip install -e '.[onnx]'"),
)
SCHEMA = "classes:[a,b,c],shape:[3],dtype:float64,columns:[x,y,z],label:k"
SCHEMA = f"{{{SCHEMA},mean:[50,9000,0.3],std:[12,2000,0.01]}}"


def table_run(folder: Path) -> Path:
    """Return a run of two sites with tables whose columns differ in size by five orders."""
    draws = np.random.default_rng(0)
    for name in ("north", "south"):
        kinds = draws.integers(3, size=60)
        values = (draws.normal(size=(60, 3)) + np.eye(3)[kinds]) * [12, 2000, 0.01] + [50, 9000, 0.3]
        lines = [f"{x},{y},{z},{'abc'[k]}" for (x, y, z), k in zip(values, kinds, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["x,y,z,k", *lines]) + "\n")
    sites = ",".join(f"{name}:'{folder / name}.csv'" for name in ("north", "south"))
    overrides = ["dataset=local", f"dataset.schema={SCHEMA}", "num_nodes=2", f"runtime.sites={{{sites}}}"]
    overrides += [
        "node_test_fraction=0.2",
        "node_timeout=0.2",
        "rounds=2",
        "save=last",
        f"data_root={folder}",
    ]
    assert launch(*overrides, f"hydra.run.dir={folder / 'run'}") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return results.predictor(table_run(tmp_path_factory.mktemp("table")))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """Return the predictor of a model with convolutions and batch normalisation, of bytes."""
    folder = tmp_path_factory.mktemp("pictures")
    played("num_nodes=2 rounds=1 save=last", folder)
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)]
    network = nn.Sequential(*layers).eval()
    return Predictor(replace(results.predictor(folder).model, network=network))


def runner(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Return an exported model as somebody without this project has it."""
    if path.suffix == ".pt":
        jit: Any = torch.jit
        model = jit.load(str(path))
        return lambda rows: model(torch.from_numpy(rows)).detach().numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    (name,) = (one.name for one in session.get_inputs())
    return lambda rows: session.run(None, {name: rows})[0]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [ONNX, ".pt"])
def test_a_table_model_takes_raw_rows_of_any_number(suffix: str, table: Predictor, tmp_path: Path) -> None:
    target = tmp_path / f"model{suffix}"
    exported.export(table, target)
    run = runner(target)
    rows = np.random.default_rng(1).normal(size=(1200, 3)) * [12, 2000, 0.01] + [50, 9000, 0.3]
    for count in (1, 2, 7, 1200):
        np.testing.assert_allclose(run(rows[:count]), table(rows[:count]).probabilities, atol=1e-5)
    assert list(tmp_path.iterdir()) == [target]  # nothing beside it


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [ONNX, ".pt"])
def test_an_image_model_takes_bytes(suffix: str, pictures: Predictor, tmp_path: Path) -> None:
    target = tmp_path / f"model{suffix}"
    exported.export(pictures, target)
    rows = np.random.default_rng(1).integers(0, 17, size=(9, 1, 8, 8), dtype=np.uint8)
    before = rows.copy()
    np.testing.assert_allclose(runner(target)(rows), pictures(rows).probabilities, atol=1e-5)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.slow
def test_the_file_says_what_it_takes(table: Predictor, tmp_path: Path) -> None:
    exported.export(table, tmp_path / "model.pt")
    files = {"florilegium": ""}
    jit: Any = torch.jit
    jit.load(str(tmp_path / "model.pt"), _extra_files=files)
    about = json.loads(files["florilegium"])
    assert about["classes"] == ["a", "b", "c"]
    assert about["schema"]["columns"] == ["x", "y", "z"]
    assert about["identity"] == table.model.description["identity"]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")
def test_an_onnx_file_says_what_it_takes(table: Predictor, tmp_path: Path) -> None:
    import onnxruntime

    exported.export(table, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    about = json.loads(session.get_modelmeta().custom_metadata_map["florilegium"])
    assert about["classes"] == ["a", "b", "c"]


@pytest.mark.slow
def test_a_missing_library_is_named(
    table: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install -e '.\[onnx\]'"):
        exported.export(table, tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_model_that_would_say_something_else_is_not_written(
    table: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bare(exported.Probabilities):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.network(rows.float()), 1)  # not normalised

    monkeypatch.setattr(exported, "Probabilities", Bare)
    with pytest.raises(UserError, match="do not agree"):
        exported.export(table, tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_cannot_be_exported_has_one_line(
    table: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise NotImplementedError("an operation\nthat nobody knows")

    monkeypatch.setattr(torch.jit, "trace", unknown)
    monkeypatch.setattr(predict, "predictor_of", lambda *_: table)
    assert predict.main([str(tmp_path), "--export", str(tmp_path / "model.pt")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be exported" in line
