"""check: show a site, offline, what an experiment would do with its data."""

import csv
import io
import logging
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from rich.console import Console
from torch import Tensor

from baselines.apps import client_app_in
from baselines.datasets import site_files
from baselines.datasets.local import Schema, SiteData
from baselines.errors import DataError, UserError
from baselines.experiment import closed
from baselines.experiment.experiment import Experiment
from baselines.experiment.experiment import load as load_experiment
from baselines.experiment.overrides import inline_schema
from baselines.experiment.preflight import check
from baselines.grids.inline import InlineGrid
from baselines.site.guard import public_line
from baselines.site.policy import Policy
from clients import Examples, Node
from clients.privacy import PrivacyRefusal
from strategies.core.strategy import get_error_reason
from strategies.shared import protocol

from .agreed import reading_notes

# A file with a site's held-out rows, on which ``predict`` gives the metrics that the site reports.


def check_target(target: Path, data: Path, schema: Schema, index: Tensor) -> None:
    """Refuse a file that cannot hold a site's held-out rows.

    Raises
    ------
    UserError : in one line
    """
    kind = ".npz" if schema.columns is None else ".csv"
    if not len(index):
        raise UserError("--held-out: the experiment holds no row out: set node_test_fraction")
    if target.suffix.lower() != kind:
        raise UserError(f"--held-out {target}: expected a {kind} file")
    if target.resolve().is_relative_to(data):
        raise UserError(f"--held-out {target} lies in the data: choose another file")
    if not target.parent.is_dir():
        raise UserError(f"--held-out {target}: there is no folder {target.parent}")


def write_held_out(target: Path, data: Path, schema: Schema, index: Tensor) -> None:
    """Write the rows ``index`` of the data, only inputs and labels, to a file that only its user can read."""
    rows, chosen = site_files.read(data, schema.label, schema.columns), index.tolist()
    labels = [rows.labels[k] for k in chosen]
    if schema.columns is None:
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, inputs=rows.inputs[chosen], targets=np.array(labels))
        content = stream.getvalue()
    else:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*schema.columns, schema.label])
        for values, label in zip(rows.inputs[chosen].tolist(), labels, strict=True):
            writer.writerow([*(repr(value).removesuffix(".0") for value in values), label])
        content = table.getvalue().encode()
    opened, fresh = tempfile.mkstemp(dir=target.parent)  # 0600
    try:
        with open(opened, "wb") as file:
            file.write(content)
        os.replace(fresh, target)
    finally:
        Path(fresh).unlink(missing_ok=True)


SINGLE_NODE_OVERRIDES = "node_timeout=1 participation.dropout=0"  # the other sites are not here
ONE_STEP_OVERRIDES = "client.local_epochs=null client.local_steps=1"
MAX_MEAN_DEVIATIONS = 3  # of the schema's deviations: a mean farther away suggests other units
MAX_DEVIATION_RATIO = 10  # times the schema's deviation
MAX_LISTED = 50  # columns or channels; with more, only those far from the schema's


def show(policy: Policy, site: str, overrides: Sequence[str], target: Path | None = None) -> None:
    """Print a summary of the data, take one training step, and list what leaves the site; cache nothing.

    Parameters
    ----------
    policy : the site's file; without one, its data and demands of privacy
    site : its name, which decides the held-out rows
    overrides : the experiment
    target : the file for the held-out rows; None writes none

    Raises
    ------
    UserError : for an experiment or a file that cannot be used, in one line
    DataError : for an experiment that the site would refuse, or data that do not fit it
    """
    experiment, reader, node = _admit(policy, site, overrides)
    data = policy.place(policy.data)
    if target is not None:
        check_target(target, data, reader.schema, node.test.index)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{data}: examples of shape {experiment.input_shape}, {node.train.inputs.dtype}")
    for name, examples in (("train", node.train), ("held out", node.test)):
        console.print(f"  {name}: {len(examples)} examples; {_by_class(experiment, examples)}")
    for line in _described_data(reader.schema, data, node.train):
        console.print(f"  {line}")
    reply = _train_once(experiment, site, data)
    console.print("one training step of this site:")
    for name, value in sorted(reply.content["metrics"].items()):
        console.print(f"  {name} = {value!r}")
    for line in _leaving(policy, experiment, reply):
        console.print(line)
    if target is not None:
        write_held_out(target, data, reader.schema, node.test.index)
        console.print(f"written: {target}, the {len(node.test)} rows that are held out")


def _admit(policy: Policy, site: str, overrides: Sequence[str]) -> tuple[Experiment, SiteData, Node]:
    """Return the experiment as admitted by the site, its reader of data, and its node."""
    experiment = load_experiment(
        shlex.join(
            [*map(inline_schema, overrides), *SINGLE_NODE_OVERRIDES.split(), *ONE_STEP_OVERRIDES.split()]
        )
    )
    check(experiment)
    if not isinstance(experiment.dataset.site, SiteData):
        raise UserError("the experiment has a data set of its own: choose dataset=local dataset.schema=...")
    reader = replace(experiment.dataset.site, cache=None)
    experiment = Experiment(experiment.overrides, replace(experiment.dataset, site=reader))
    data = policy.place(policy.data)
    try:
        if policy.file:
            closed.check(shlex.join(map(inline_schema, overrides)), policy.targets)
            policy.admit(experiment, MessageType.QUERY, experiment.prototype.train_config())
            if question := experiment.prototype.question:
                policy.admit(experiment, protocol.QUESTION, question.config())
        else:
            policy.demand_privacy(experiment.prototype.train_config())
        node = experiment.site(site, str(data))
        policy.require_rows(len(node.train) + len(node.test))
    except (UserError, PrivacyRefusal) as error:
        raise DataError(f"the site would be left out: {error}", public_line(error)) from error
    return experiment, reader, node


def show_file(policy: Policy) -> None:
    """Print that a site's file is valid, and whether its data exist."""
    data = policy.place(policy.data) if policy.data else None
    data_text = "names no data" if data is None else f"reads {data}"
    gap = ", where nothing is yet" if data and not data.exists() else ""
    print(f"{policy.file}: in order, {data_text}{gap}")


def _leaving(policy: Policy, experiment: Experiment, reply: Message) -> Iterator[str]:
    """Yield lines on what leaves the site."""
    yield "this leaves the site after each training, and nothing else:"
    for name, record in reply.content.items():
        yield f"  {name}: {_described(record)}"
    if question := experiment.prototype.question:
        yield f"before a round, where it is asked: num-examples, {', '.join(question.metrics)}"
    if policy.privacy == protocol.LOCAL or not policy.evaluate:
        yield "it refuses to evaluate"
    elif experiment.settings.node_test_fraction:
        yield "after each test on the held-out share: how many examples it has, loss and accuracy"
    yield "before round 1: the site's name; where it refuses, a code and a count"


def _described(record: ArrayRecord | MetricRecord | ConfigRecord) -> str:
    """Describe the content of a reply's record in words."""
    if not isinstance(record, ArrayRecord):
        return ", ".join(sorted(record))
    size = sum(len(array.data) for array in record.values())
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in record.items())
    return f"{len(record)} arrays, {size / 1e6:.3g} MB: {shapes}"


def _described_data(schema: Schema, data: Path, examples: Examples) -> Iterator[str]:
    """Describe what was left out, duplicates, and each column beside the schema's."""
    yield from reading_notes(site_files.read(data, schema.label, schema.columns))
    inputs, targets = examples.inputs, examples.targets  # all rows of the site
    assert isinstance(inputs, Tensor)
    digests = {
        blake2b(row.numpy().tobytes() + target.numpy().tobytes(), digest_size=16).digest()
        for row, target in zip(inputs, targets, strict=True)
    }
    yield f"duplicates: {len(inputs) - len(digests)} of {len(inputs)} rows"
    yield "mean and spread (standard deviation), here and in the schema:"
    names = schema.columns or [f"channel {k}" for k in range(len(schema.mean))]
    listed = [_compare_columns(schema, k, inputs[:, k]) for k in range(len(names))]
    for name, (line, is_far) in zip(names, listed, strict=True):
        if is_far or len(names) <= MAX_LISTED:
            yield f"  {name}: {line}"
    if len(names) > MAX_LISTED:
        yield f"  {sum(not is_far for _, is_far in listed)} others are near the schema's"


def _compare_columns(schema: Schema, k: int, values: Tensor) -> tuple[str, bool]:
    """Return a column's mean and spread beside the schema's, and whether they differ much."""
    values = values.double() / schema.scale
    here, spread = float(values.mean()), float(values.std(correction=0))
    mean, std = schema.mean[k], schema.std[k]
    line = f"mean {here:.4g} and {mean:.4g}, spread {spread:.4g} and {std:.4g}"
    distance = abs(here - mean) / std
    if distance > MAX_MEAN_DEVIATIONS:
        return f"{line}  <- {distance:.3g} deviations of the schema away: in other units?", True
    if spread > MAX_DEVIATION_RATIO * std:
        return f"{line}  <- {spread / std:.3g} times as wide: in other units?", True
    return line, False


def _by_class(experiment: Experiment, examples: Examples) -> str:
    """Return the number of examples of each class."""
    assert isinstance(experiment.dataset.site, SiteData)
    classes = experiment.dataset.site.schema.classes
    counts = torch.bincount(examples.targets[examples.index], minlength=len(classes)).tolist()
    return ", ".join(f"{name} {count}" for name, count in zip(classes, counts, strict=True))


def _train_once(experiment: Experiment, site: str, data: Path) -> Message:
    """Return the site's reply to the first round's message.

    Raises
    ------
    UserError : if the site fails
    """
    grid = InlineGrid(client_app_in(experiment), 1, sites={site: str(data)})
    logging.disable(logging.WARNING)  # fewer nodes than in the experiment
    try:
        messages = experiment.strategy().configure_train(
            1, experiment.initial_arrays(), experiment.train_config(), grid
        )
        (reply,) = grid.send_and_receive(messages)
    finally:
        logging.disable(logging.NOTSET)
    if reply.has_error():
        raise UserError(f"the site cannot train: {get_error_reason(reply)}")
    return reply
