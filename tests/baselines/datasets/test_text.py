"""Texts of tables and hub folders: their tokens, what is refused, and a trained model's predictions of more."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from baselines import predict, results
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.data import load_dataset
from baselines.experiment.experiment import Experiment
from helpers.runs import curve, played

TOKENS = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -e '.[text]'")
WORDS = {
    "fruit": ["apple", "pear", "plum"],
    "tool": ["hammer", "saw", "drill"],
    "NA": ["nothing", "none", "null"],
}


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return sentences of one to five words of their label, each of a writer."""
    draws = np.random.default_rng(seed)
    labels = draws.choice([*WORDS], rows)
    texts = [" ".join(draws.choice(WORDS[one], draws.integers(1, 6))) for one in labels]
    return pd.DataFrame({"said": texts, "kind": labels, "who": [f"w{k % 4}" for k in range(rows)]})


def load(path: Path | str, tmp_path: Path, *overrides: str) -> Experiment:
    load_dataset.cache_clear()
    experiment.load.cache_clear()
    named = f"dataset=text dataset.name={path} dataset.text=said dataset.label=kind data_root={tmp_path}"
    return experiment.load(" ".join([named, "dataset.length=4 dataset.vocabulary=60", *overrides]))


def written(folder: Path, name: str = "train.csv", rows: int = 60, seed: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path, data = folder / name, table(rows, seed)
    if path.suffix == ".parquet":
        data.to_parquet(path)
    else:
        data.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def tokenizer(**special: int) -> Any:
    words = [word for words in WORDS.values() for word in words]
    model = TOKENS.models.WordLevel({**special, **{word: k + 2 for k, word in enumerate(words)}}, "[UNK]")
    whole = TOKENS.Tokenizer(model)
    whole.pre_tokenizer = TOKENS.pre_tokenizers.Whitespace()
    return whole


def test_texts_are_cut_and_filled_up(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    tokenizer(**{"[PAD]": 0, "[UNK]": 1}).save(str(file))
    texts = ["plum", "apple pear plum hammer saw", "pear  fish", *["saw"] * 17]
    labels = ["fruit", "tool", "fruit", "tool"] * 5
    pd.DataFrame({"said": texts, "kind": labels}).to_csv(tmp_path / "few.csv", index=False)
    data = load(tmp_path / "few.csv", tmp_path, f"dataset.tokenizer={file}").dataset
    assert data.train_inputs.dtype == torch.int64
    assert data.train_inputs[:3].tolist() == [[4, 0, 0, 0], [2, 3, 4, 5], [3, 1, 0, 0]]
    assert data.train_targets[:4].tolist() == [0, 1, 0, 1]
    assert (len(data.train_targets), len(data.test_targets), data.num_classes) == (18, 2, 2)


@pytest.mark.parametrize("name", ["train.tsv", "train.parquet", "hub"])
def test_the_same_texts_of_another_kind_of_file_are_the_same_tokens(name: str, tmp_path: Path) -> None:
    first = load(written(tmp_path / "one"), tmp_path).dataset
    path = written(tmp_path / "other", "train.parquet" if name == "hub" else name)
    other = load(path.parent if name == "hub" else path, tmp_path).dataset
    for part in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        assert torch.equal(getattr(first, part), getattr(other, part)), part
    assert first.encoder == other.encoder
    assert first.encoder is not None
    assert first.encoder.classes == ("NA", "fruit", "tool")


def test_a_tokenizer_depends_on_the_training_texts_alone(tmp_path: Path) -> None:
    from baselines.datasets.tokens import train_tokenizer

    texts = table(40).said.tolist()
    assert train_tokenizer(texts, 50) == train_tokenizer(texts[::-1], 50)
    tables = [written(tmp_path / "a"), written(tmp_path / "b", "test.csv", 20, 1)]
    pd.DataFrame({"said": ["zebra"] * 9 + ["saw"], "kind": ["fruit", "tool"] * 5}).to_csv(tables[1])
    data = load(tables[0], tmp_path, f"dataset.test_split={tables[1]}").dataset
    assert (len(data.train_targets), len(data.test_targets)) == (60, 10)
    unknown, known = data.test_inputs[0], data.test_inputs[9]
    assert 1 in unknown
    assert known.tolist() == data.encoder(["saw"])[0].tolist()  # type: ignore[misc]
    assert json.loads(data.encoder.tokenizer)["model"]["vocab"].keys().isdisjoint({"z", "zebra"})  # type: ignore[union-attr]


def test_texts_of_a_writer_are_a_nodes(tmp_path: Path) -> None:
    path = written(tmp_path / "one")
    experiment = load(path, tmp_path, "dataset.writer=who partitioner=by_writer num_nodes=4")
    rows = experiment.partitions[2][0]
    texts = table(60)
    assert experiment.dataset.owners is not None
    assert set(experiment.dataset.owners[rows]) == {2}
    held = {tuple(row) for row in experiment.dataset.train_inputs[torch.from_numpy(rows)].tolist()}
    assert held <= {
        tuple(row) for row in experiment.dataset.encoder(texts.said[texts.who == "w2"].tolist()).tolist()
    }  # type: ignore[misc]


MISTAKES = {
    "dataset.name=null": "dataset=text needs a name",
    "dataset.text=words": "has no column 'words' for the text: expected one of",
    "dataset.text=number": r"column 'number' of data set .* holds a int in row 0: expected texts",
    "dataset.text=gaps": r"column 'gaps' of data set .* is empty in 2 rows: fill or remove them",
    "dataset.vocabulary=5": r"dataset.vocabulary=5, and the training texts have signs for \d+ tokens: set",
    "dataset.length=0": r"dataset.shape=.*dataset.length.* is out of range: expected a list of whole numbers above 0",
    "dataset.tokenizer=none.json": "dataset.tokenizer=none.json cannot be read",
    "dataset.name=none.csv": "none.csv cannot be read",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_mistakes_are_told_in_one_line(override: str, tmp_path: Path) -> None:
    data = table(30).assign(number=3, gaps=["", " ", *["text"] * 28])
    data.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(UserError, match=MISTAKES[override]):
        load(tmp_path / "table.parquet", tmp_path, override).dataset  # noqa: B018


def test_a_tokenizer_that_does_not_fit_is_a_mistake(tmp_path: Path) -> None:
    path, file = written(tmp_path / "one"), tmp_path / "tokenizer.json"
    tokenizer(**{"<s>": 0, "[UNK]": 1}).save(str(file))
    with pytest.raises(UserError, match=r"its token 0 is '<s>'; expected \[PAD\] or <pad>"):
        load(path, tmp_path, f"dataset.tokenizer={file}").dataset  # noqa: B018
    with pytest.raises(UserError, match=r"json has 11 tokens: set dataset.vocabulary=11"):
        load(path, tmp_path, f"dataset.tokenizer={file} dataset.vocabulary=9").dataset  # noqa: B018


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"^dataset=text needs the package tokenizers: pip install -e"):
        load(written(tmp_path / "one"), tmp_path).dataset  # noqa: B018


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    test = written(folder, "test.csv", 40, 1)
    setting = (
        f"{load(written(folder, rows=120), folder).overrides} dataset.test_split={test} num_nodes=3 rounds=8 "
        "model.width=8 model.heads=2 model.layers=1 client_optimizer=adam client.optimizer.lr=0.03 "
        "client.batch_size=8 save=last"
    )
    played(setting, folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_a_run_learns_and_its_model_says_the_same_of_a_table(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = curve(pd.read_csv(run / "metrics.csv"), "test", "accuracy")[-1]
    assert accuracy > 0.9
    test, output = run.parent / "test.csv", run.parent / "predictions.csv"
    assert predict.main([str(run), str(test), "--output", str(output)]) == 0
    assert f"accuracy: {accuracy:.6g}\n" in capsys.readouterr().out
    named = pd.read_csv(output, keep_default_na=False).predicted
    assert set(named) <= {*WORDS}
    pd.read_csv(test, keep_default_na=False)[["said"]].to_csv(run.parent / "bare.csv", index=False)
    assert predict.main([str(run), str(run.parent / "bare.csv")]) == 2
    assert "has no labels to measure with" in capsys.readouterr().err


@pytest.mark.slow
def test_texts_are_classified_in_python(run: Path) -> None:
    classify = results.predictor(run)
    texts = ["a hammer", "plum plum plum"]
    assert classify(texts).classes == ["tool", "fruit"]
    assert classify(pd.DataFrame({"said": texts})).classes == ["tool", "fruit"]
    for rows, message in (
        ("a text", "not a list of texts"),
        ([1.5], "not a list of texts"),
        (pd.DataFrame({"a": texts}), "no column 'said'"),
    ):
        with pytest.raises(UserError, match=message):
            classify(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.onnx", "model.pt"])
def test_the_model_is_exported_for_tokens(name: str, run: Path) -> None:
    assert predict.main([str(run), "--export", str(run.parent / name)]) == 0
