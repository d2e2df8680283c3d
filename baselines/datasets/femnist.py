"""femnist: handwritten digits and letters, divided by writer.

Caldas et al.: *LEAF: A Benchmark for Federated Settings*, 2019. Read from LEAF's own JSON files, or from
``flwrlabs/femnist`` on the Hugging Face hub. Labels: 0-9 digits, 10-35 capitals, 36-61 small letters.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from baselines.errors import UserError
from clients import Classification, Normalize

from .cache import load_cached
from .dataset import Dataset, parts
from .hub import read_hub
from .tables import Table, arrays_of, hold_out

COLUMNS: dict[str, str | None] = {"image": "image", "label": "character", "writer": "writer_id"}


def femnist(
    root: str,
    folder: str,
    hub_name: str,
    download: bool,
    num_classes: int,
    mean: list[float],
    std: list[float],
) -> Dataset:
    """Return FEMNIST with the writer of each training image as its owner.

    Parameters
    ----------
    root, folder : ``root/folder/train/*.json`` (and ``test/*.json``) are LEAF's files; without a test
        folder every tenth writer is kept for testing
    hub_name : where it is loaded from when those are not there
    download : whether that is allowed
    num_classes : 62, or 10 for the digits alone
    mean, std : of pixels in [0, 1]; the background is white
    """
    leaf = Path(root, folder)

    def build() -> dict[str, np.ndarray]:
        if (leaf / "train").is_dir():
            tables = [_leaf(leaf / part) for part in ("train", "test") if (leaf / part).is_dir()]
        elif download:
            tables = read_hub(hub_name, None, ["train"], COLUMNS)
            tables = [table._replace(labels=table.labels.astype(np.int64)) for table in tables]
        else:
            raise UserError(
                f"no LEAF files in {leaf / 'train'} and download=false: put FEMNIST's JSON files there, or "
                "try dataset=mnist_writers"
            )
        tables = [table.select(table.labels < num_classes) for table in tables]
        train, test = tables if len(tables) > 1 else hold_out(tables[0])
        return arrays_of(train, test)

    arrays = load_cached("femnist", (hub_name, num_classes), Path(root), [leaf], build)
    owners = arrays.pop("owners").numpy()
    transform = Normalize(tuple(mean), tuple(std))
    return Dataset(*parts(arrays), task=Classification(), transform=transform, owners=owners)


def _leaf(folder: Path) -> Table:
    """Read LEAF's shards: {"user_data": {user: {"x": [784 numbers in 0 ... 1 each], "y": [labels]}}}."""
    inputs, labels, writers = [], [], []
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UserError(f"no JSON files in {folder}: expected LEAF's FEMNIST shards")
    for file in files:
        for user, data in _users(file).items():
            try:
                pixels = np.asarray(data["x"], dtype=np.float32).reshape(len(data["y"]), 1, 28, 28)
                labels.append(np.asarray(data["y"], dtype=np.int64))
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{file}: user {user} has no images of 28x28 ({error})") from error
            if len(pixels) and not 0 <= pixels.min() <= pixels.max() <= 1:
                raise UserError(f"{file}: user {user} has pixels outside of 0 to 1, unlike LEAF's")
            inputs.append(np.rint(pixels * 255).astype(np.uint8))
            writers += [user] * len(data["y"])
    if not inputs:
        raise UserError(f"the JSON files in {folder} have no users: expected LEAF's FEMNIST shards")
    return Table(np.concatenate(inputs), np.concatenate(labels), np.array(writers))


def _users(file: Path) -> dict[str, Any]:
    try:
        users: dict[str, Any] = json.loads(file.read_bytes())["user_data"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error}): expected one of LEAF's JSON files") from error
    return users
