"""A site: what a node with data of its own trains on, and what it holds out to judge models on."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch

from baselines.datasets import Dataset
from baselines.datasets.local import SiteData
from baselines.errors import DataError
from baselines.partitioners import split_node
from clients import Examples
from strategies.shared.seeding import Purpose, generator

from .settings import Settings

START = 'start its node with --node-config \'site="north" data="/path"\''


def site_examples(
    dataset: Dataset, told: Settings, name: str, path: str, prepared: Path | None = None
) -> tuple[Examples, Examples]:
    """Return a site's examples for training, and those held out.

    ``prepared`` is the folder for prepared data; None for the data set's own. Which are held out
    depends on the seed and the site's name, not on who else takes part.

    Raises
    ------
    DataError : where the site has no name or no data, or data that do not fit the schema
    """
    if dataset.site is None:
        raise DataError(
            "the experiment has a data set of its own, and this node no partition-id: give it one, or "
            "choose dataset=local",
            "data: the experiment has a data set of its own, and the node no partition",
        )
    if not name or not path:
        missing = "data" if name else "name"
        raise DataError(f"the site has no {missing}: {START}", f"data: the node has no {missing}")
    reader = dataset.site
    if prepared is not None and isinstance(reader, SiteData):
        reader = replace(reader, cache=prepared, has_fallback=False)
    arrays = reader(Path(path))
    inputs, targets = arrays["inputs"], arrays["targets"]
    number = int.from_bytes(sha256(name.encode()).digest()[:4])
    rows = torch.arange(len(targets))
    test = rows[:0]
    if told.node_test_fraction:
        draw = generator(told.seed, Purpose.NODE_SPLIT, partition_id=number)
        parts = split_node(rows.numpy(), targets.numpy(), told.node_test_fraction, draw)
        rows, test = map(torch.from_numpy, parts)
    share = told.device_memory_share
    return (
        Examples(inputs, targets, rows, dataset.transform, dataset.augment, share),
        Examples(inputs, targets, test, dataset.transform, memory_share=share),
    )
