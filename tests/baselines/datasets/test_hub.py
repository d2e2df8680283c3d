"""The generic entry for hub sets, on local folders in the hub's own formats."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from baselines.datasets import site_files
from baselines.datasets.hub import pixels
from baselines.datasets.tables import Table, hold_out
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.data import load_dataset
from baselines.experiment.preflight import check


def save(
    folder: Path, split: str, images: list[np.ndarray], labels: list[Any], *, names: list[str] | None = None
) -> None:
    """Write a parquet file with an image and a label column, and who made each image."""
    from datasets import ClassLabel, Dataset, Features, Image, Value

    kind = Value("int64" if isinstance(labels[0], int) else "string")
    features = Features(
        {
            "picture": Image(),
            "kind": ClassLabel(names=names) if names else kind,
            "who": Value("string"),
        }
    )
    columns = {
        "picture": [pil(image) for image in images],
        "kind": labels,
        "who": [f"w{i % 3}" for i in range(len(images))],
    }
    folder.mkdir(exist_ok=True)
    Dataset.from_dict(columns, features=features).to_parquet(folder / f"{split}.parquet")


def pil(image: np.ndarray) -> Any:
    return Image.fromarray(image)


def pictures(count: int, *shape: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    return list(rng.integers(0, 256, (count, *shape), dtype=np.uint8))


def load(folder: Path, tmp_path: Path, *overrides: str) -> experiment.Experiment:
    return experiment.Experiment(
        " ".join(
            [
                "dataset=hub",
                f"dataset.name={folder}",
                "dataset.image=picture",
                "dataset.label=kind",
                f"data_root={tmp_path}",
                *overrides,
            ]
        )
    )


@pytest.fixture(autouse=True)
def own_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def test_name_image_and_label_are_enough(tmp_path: Path) -> None:
    folder = tmp_path / "flowers"
    train, test = pictures(30, 20, 24, 3), pictures(12, 20, 24, 3)
    save(folder, "train", train, [i % 4 for i in range(30)], names=["a", "b", "c", "d"])
    save(folder, "test", test, [i % 4 for i in range(12)], names=["a", "b", "c", "d"])
    experiment = load(folder, tmp_path, "model=mlp", "num_nodes=3", "partitioner=iid")
    data = experiment.dataset
    np.testing.assert_array_equal(data.train_inputs[5].movedim(0, 2), train[5])
    np.testing.assert_array_equal(data.test_inputs[11].movedim(0, 2), test[11])
    assert data.num_classes == 4
    assert experiment.model()(torch.zeros(2, 3, 20, 24)).shape == (2, 4)
    check(experiment)
    normal = data.transform(data.train_inputs)  # type: ignore[misc]
    torch.testing.assert_close(normal.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(normal.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


def test_it_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "grey"
    save(folder, "train", pictures(8, 6, 6), [0, 1] * 4)
    save(folder, "test", pictures(4, 6, 6), [0, 1] * 2)
    first = load(folder, tmp_path).dataset
    load_dataset.cache_clear()
    monkeypatch.setattr("flwr_datasets.FederatedDataset", None)
    second = load(folder, tmp_path).dataset
    assert torch.equal(first.train_inputs, second.train_inputs)
    assert first.train_inputs.shape == (8, 1, 6, 6)
    assert first.transform == second.transform


def test_string_labels_are_numbered_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    save(folder, "train", pictures(6, 5, 5), ["b", "a", "c"] * 2)
    save(folder, "test", pictures(3, 5, 5), ["c", "b", "d"])
    data = load(folder, tmp_path).dataset
    assert data.train_targets.tolist() == [1, 0, 2] * 2
    assert data.test_targets.tolist() == [2, 1, 3]
    assert data.num_classes == 4


@pytest.mark.slow
def test_images_of_several_sizes_are_refused_or_brought_to_one(tmp_path: Path) -> None:
    folder = tmp_path / "sizes"
    save(folder, "train", [*pictures(3, 8, 8, 3), *pictures(2, 10, 8)], [0, 1, 0, 1, 0])
    save(folder, "test", pictures(2, 9, 9, 3), [0, 1])
    with pytest.raises(UserError, match=r"2 different sizes.*dataset.size=\[32,32\]"):
        _ = load(folder, tmp_path).dataset
    data = load(folder, tmp_path, "dataset.size=[12,10]").dataset
    assert data.train_inputs.shape == (5, 3, 12, 10)
    grey = data.train_inputs[4]
    assert torch.equal(grey[0], grey[1])


def test_without_a_test_split_a_tenth_is_held_out(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    save(folder, "train", pictures(40, 5, 5), [i % 2 for i in range(40)])
    data = load(folder, tmp_path, "dataset.test_split=null").dataset
    assert (len(data.train_inputs), len(data.test_inputs)) == (36, 4)


def test_few_writers_each_keep_a_part_for_testing(tmp_path: Path) -> None:
    """As of data that come from four places: no place is a tenth of them."""
    folder = tmp_path / "few"
    save(folder, "train", pictures(40, 5, 5), [i % 2 for i in range(40)])
    data = load(folder, tmp_path, "dataset.test_split=null", "dataset.writer=who").dataset
    assert (len(data.train_inputs), len(data.test_inputs)) == (36, 4)
    assert data.owners is not None
    assert len(data.owners) == 36


def test_writers_are_natural_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "who"
    save(folder, "train", pictures(9, 5, 5), [i % 2 for i in range(9)])
    save(folder, "test", pictures(3, 5, 5), [0, 1, 0])
    experiment = load(folder, tmp_path, "dataset.writer=who", "partitioner=by_writer", "num_nodes=3")
    assert [train.tolist() for train, _ in experiment.partitions] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.image=photo", r"no column 'photo' for the image: expected one of \['picture'"),
        ("dataset.label=sort", "no column 'sort' for the label"),
        ("dataset.writer=author", "no column 'author' for the writer"),
        ("dataset.test_split=validation", "could not be loaded .*validation"),
    ],
)
def test_mistakes_get_one_line(override: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    save(folder, "train", pictures(4, 5, 5), [0, 1, 0, 1])
    save(folder, "test", pictures(2, 5, 5), [0, 1])
    with pytest.raises(UserError, match=message) as caught:
        _ = load(folder, tmp_path, override).dataset
    assert "\n" not in str(caught.value)


def test_a_name_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"dataset\.name") as caught:
        _ = experiment.Experiment("dataset=hub").dataset
    assert "\n" not in str(caught.value)


def test_a_set_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("datasets.config", "huggingface_hub.constants"):
        monkeypatch.setattr(f"{module}.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"nobody/nothing could not be loaded.*dataset=digits"):
        _ = load(Path("nobody/nothing"), tmp_path).dataset


def test_femnist_comes_from_the_hub_where_leaf_s_files_are_not(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Image, Value

    folder = tmp_path / "flwrlabs"
    folder.mkdir()
    features = Features(
        {
            "image": Image(),
            "writer_id": Value("string"),
            "hsf_id": Value("int64"),
            "character": ClassLabel(num_classes=62),
        }
    )
    images = pictures(44, 28, 28)
    rows = {
        "image": [pil(image) for image in images],
        "writer_id": [f"f{i // 4:04}_00" for i in range(44)],
        "hsf_id": [0] * 44,
        "character": [i % 62 for i in range(44)],
    }
    Dataset.from_dict(rows, features=features).to_parquet(folder / "train.parquet")
    data = experiment.Experiment(
        f"dataset=femnist data_root={tmp_path} dataset.load.hub_name={folder}"
    ).dataset
    assert len(data.test_inputs) == 4  # the tenth of eleven writers
    assert data.owners is not None
    assert data.owners.max() == 9
    np.testing.assert_array_equal(data.train_inputs[3, 0], images[3])


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_pictures_of_more_than_8_bits_are_refused_not_cut_off(mode: str, tmp_path: Path) -> None:
    deep = Image.fromarray(np.full((4, 4), 40_000, np.uint16)).convert(mode)
    with pytest.raises(UserError, match=r"pictures of more than 8 bits a channel.*save them with 8 bits"):
        pixels(deep, None)
    if mode == "I;16":  # as a hospital may have them
        (tmp_path / "a").mkdir()
        deep.save(tmp_path / "a" / "0.png")
        with pytest.raises(UserError, match="more than 8 bits"):
            site_files.read(tmp_path)


def test_a_part_that_is_held_out_has_every_label_and_does_not_go_by_the_order(tmp_path: Path) -> None:
    folder = tmp_path / "turns"
    save(folder, "train", pictures(60, 5, 5), [i % 2 for i in range(60)])
    data = load(folder, tmp_path, "dataset.test_split=null").dataset
    assert data.test_targets.bincount().tolist() == [3, 3]
    whole = np.arange(60)
    table = Table(whole, whole % 2, None)
    _, test = hold_out(table)
    assert len(set(np.diff(test.inputs))) > 2
    assert test.inputs.tolist() == hold_out(table)[1].inputs.tolist()


def test_pictures_in_bytes_and_labels_with_gaps_are_read(tmp_path: Path) -> None:
    """As pandas or polars write them, without the hub's own description."""
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "plain").mkdir()
    cells = []
    for image in pictures(30, 5, 5):
        stream = BytesIO()
        pil(image).save(stream, "PNG")
        cells.append({"bytes": stream.getvalue(), "path": None})
    rows = pa.table({"picture": cells, "kind": [(1, 2, 5)[i % 3] for i in range(30)]})
    parquet.write_table(rows, tmp_path / "plain" / "train.parquet")
    data = load(tmp_path / "plain", tmp_path, "dataset.test_split=null").dataset
    assert data.num_classes == 3
    assert sorted(data.train_targets.unique().tolist()) == [0, 1, 2]
    assert data.train_inputs.shape == (27, 1, 5, 5)


def test_images_to_train_and_to_test_on_have_one_shape(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    save(folder, "train", pictures(6, 5, 5), [i % 2 for i in range(6)])
    save(folder, "test", pictures(6, 5, 5, 3), [i % 2 for i in range(6)])
    with pytest.raises(UserError, match=r"images of \[1, 5, 5\] to train and of \[3, 5, 5\] to test on"):
        _ = load(folder, tmp_path).dataset
