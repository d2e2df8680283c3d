"""Predictor: a run's trained model with its preprocessing, for a site's raw rows.

The network, the schema and the normalisation are the run's own (:mod:`~baselines.engine.saved_model` says
where they come from, and what code runs to load them).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from baselines.datasets.local import DTYPES, Schema, SiteData, number_names, schema_of
from baselines.datasets.site_files import SiteFile
from baselines.datasets.text import read_texts
from baselines.datasets.tokens import TextEncoder
from baselines.errors import UserError
from clients import Classification, Examples
from clients.evaluation import average_sums, has_output, iterate_outputs, num_batches
from clients.examples import Inputs, Transform, apply_to_each, count_rows, has_several_inputs, tensors_of
from strategies.shared import protocol

from .saved_model import SavedModel, load_model


class Prediction(NamedTuple):
    """A model's predictions for some rows.

    Parameters
    ----------
    classes : the name of each row's class; None where the model has no output (not finite)
    probabilities : [rows, classes] in float32, each row adds up to 1; NaN where the model has no output
    """

    classes: list[str | None]
    probabilities: np.ndarray

    @property
    def num_diverged(self) -> int:
        """How many rows have no prediction, because the model's outputs are not finite."""
        return self.classes.count(None)


@dataclass(frozen=True)
class Measures:
    """How well predictions agree with labels, by the definitions that runs are evaluated with.

    Parameters
    ----------
    accuracy : share of rows whose class is predicted; NaN where some row has no prediction
    loss : mean cross-entropy; NaN where the accuracy is
    recall : by class with rows, the number predicted correctly (NaN where the accuracy is) and the number
        of rows
    """

    accuracy: float
    loss: float
    recall: dict[str, tuple[float, int]]


@dataclass(frozen=True)
class Predictor:
    """A trained model that takes raw rows: as a site's file has them, neither scaled nor normalised.

    Calling it returns a :class:`Prediction`.

    Parameters
    ----------
    model : the network, and what is known of it
    """

    model: SavedModel

    @property
    def transform(self) -> Transform | None:
        """Turns a batch of raw rows into what the network takes; None leaves them as they are."""
        return self.model.experiment.dataset.transform

    @cached_property
    def schema(self) -> Schema | None:
        """What the sites have agreed on; None if the data were not the sites' own."""
        fields = self.model.description.get("schema")
        return None if fields is None else schema_of(fields)

    @property
    def encoder(self) -> TextEncoder | None:
        """Turns texts into rows; None if the data were not texts."""
        return self.model.experiment.dataset.encoder

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of raw rows."""
        return self.model.experiment.dataset.test_inputs.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one raw row."""
        return tuple(self.model.experiment.input_shape)

    @property
    def _like(self) -> Inputs:
        """An empty batch with the shape and dtype of raw rows; a tuple or dict for several inputs."""
        rows = self.model.experiment.dataset.test_inputs
        return rows if has_several_inputs(rows) else torch.zeros(0, *self.shape, dtype=self.dtype)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of a table, in the order of the network's inputs; None for other data."""
        return None if self.schema is None else self.schema.columns

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The name of each output: the classes of the schema, or of texts; else the labels' numbers."""
        known = self.schema or self.encoder
        names = (known.classes if known else None) or ()
        zeros = apply_to_each(lambda part: torch.zeros(2, *part.shape[1:], dtype=part.dtype), self._like)
        try:
            (outputs,) = self._outputs(zeros, None)[0]
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            shape = apply_to_each(lambda part: list(part.shape[1:]), self._like)
            raise UserError(f"the model does not take rows of shape {shape}: {error}") from error
        if outputs.ndim != 2 or outputs.shape[1] < max(2, len(names)):
            raise UserError(
                f"the model returns {list(outputs.shape)} of 2 rows: expected [2, classes], with "
                f"{len(names) or 'two or more'} classes"
            )
        more = (f"unnamed {k}" if names else str(k) for k in range(len(names), outputs.shape[1]))
        return (*names, *more)

    def __call__(self, rows: np.ndarray | pd.DataFrame | Inputs) -> Prediction:
        """Return the class of each row, and the probability of each class.

        Parameters
        ----------
        rows : [n, ...] with the shape and dtype of a site's data. For a table, a DataFrame that has the
            schema's columns, or an array with these in order. For texts, a list, or a DataFrame with their
            column. For several inputs, a tuple or dict of arrays

        Raises
        ------
        UserError : for rows of another shape or kind, a missing column, NaN or infinite values
        """
        return self.predict(self.raw(rows))[0]

    def predict(
        self, inputs: Inputs, labels: Sequence[str] | None = None
    ) -> tuple[Prediction, Measures | None]:
        """Return the prediction for raw ``inputs`` [n, ...] and, given ``labels``, how well it agrees.

        Raises
        ------
        UserError : for a label that is no class
        """
        targets = None if labels is None else self._numbers(labels)
        batches, loss = self._outputs(inputs, targets)
        outputs = torch.cat(batches)
        finite, chosen = has_output(outputs), outputs.argmax(1)
        probabilities = outputs.softmax(1).to(torch.float32)
        probabilities[~finite] = torch.nan
        names = [
            self.classes[k] if ok else None for k, ok in zip(chosen.tolist(), finite.tolist(), strict=True)
        ]
        prediction = Prediction(names, probabilities.numpy())
        if targets is None:
            return prediction, None
        return prediction, self._measure(targets, chosen, finite, loss)

    def _measure(self, targets: Tensor, chosen: Tensor, finite: Tensor, loss: float) -> Measures:
        right, is_whole = chosen == targets, bool(finite.all())
        totals = torch.bincount(targets, minlength=len(self.classes)).tolist()
        hits = torch.bincount(targets[right], minlength=len(self.classes)).tolist()
        recall = {
            name: (k if is_whole else math.nan, n)
            for name, k, n in zip(self.classes, hits, totals, strict=True)
            if n
        }
        accuracy = int(right.sum()) / len(targets) if is_whole else math.nan
        return Measures(accuracy, loss if is_whole else math.nan, recall)

    def read(self, path: Path) -> SiteFile:
        """Read and check the data at ``path`` as a site does; labels may be missing.

        Raises
        ------
        UserError : for data that do not fit, in one line
        """
        if self.encoder is not None:
            rows = read_texts(path, self.encoder)
        else:
            rows = SiteData(self.schema or self._rows_of_arrays(), None).rows(path, needs_labels=False)
        self._numbers([label for label in rows.labels if label])
        return rows

    def raw(self, rows: np.ndarray | pd.DataFrame | Inputs) -> Inputs:
        """Return rows as tensors [n, ...] of raw inputs; :meth:`__call__` says what is refused."""
        like = self._like
        if not has_several_inputs(like):
            return self._raw(self._values(rows), self.shape, self.dtype)
        keys = list(like) if isinstance(like, Mapping) else list(range(len(like)))
        kind = Mapping if isinstance(like, Mapping) else tuple
        names = isinstance(rows, kind) and (list(rows) if kind is Mapping else list(range(len(rows))))
        if names is False or set(names) != set(keys):
            what = f"a dict of {keys}" if kind is Mapping else f"a tuple of {len(keys)}"
            raise UserError(f"the model takes several inputs: expected {what}")
        each = {key: self._raw(rows[key], tuple(like[key].shape[1:]), like[key].dtype) for key in keys}
        inputs: Inputs = each if kind is Mapping else tuple(each.values())
        if len({len(part) for part in tensors_of(inputs)}) > 1:
            raise UserError("the rows of several inputs differ in number: expected as many in each")
        return inputs

    def _raw(self, values: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return the rows of one input as a tensor."""
        if not isinstance(values, Tensor):
            values = np.asarray(values)
            if values.dtype.kind not in "buif":
                raise UserError(f"the rows hold {values.dtype}: expected numbers")
            values = torch.from_numpy(np.ascontiguousarray(values))
        if values.ndim == 0 or tuple(values.shape[1:]) != shape:
            raise UserError(f"the rows have shape {list(values.shape)}: expected {['n', *shape]}")
        if not len(values):
            raise UserError("there are no rows: expected one for each example")
        if not dtype.is_floating_point and values.dtype != dtype:
            raise UserError(
                f"the rows hold {_name_of(values.dtype)}: expected {_name_of(dtype)}, as the model "
                "was trained on, neither scaled nor normalised"
            )
        values = values.detach().cpu().to(dtype)
        if not values.isfinite().all():
            raise UserError("the rows have NaN or infinite values: fill or remove them")
        return values

    def _values(self, rows: Any) -> Any:
        """Return texts as tokens, a table as its columns in order, and other rows unchanged."""
        if self.encoder is not None:
            return self._encoded(rows, self.encoder)
        if not isinstance(rows, pd.DataFrame):
            return rows
        if self.columns is None:
            raise UserError(f"the model takes no table: expected an array {['n', *self.shape]}")
        names = [str(name) for name in rows.columns]
        for name in self.columns:
            if names.count(name) != 1:
                what = f"has {names.count(name)} columns" if name in names else "has no column"
                raise UserError(f"the table {what} {name!r}: expected {list(self.columns)}")
        table = rows.set_axis(names, axis=1)[list(self.columns)]
        for name in self.columns:
            if not pd.api.types.is_numeric_dtype(table[name]):
                raise UserError(f"column {name!r} holds {table[name].dtype}: expected numbers")
        return table.to_numpy(dtype=np.float64, na_value=np.nan)

    def _encoded(self, rows: Any, encoder: TextEncoder) -> Any:
        """Return the tokens of a list, or a table's column, of texts; tokens unchanged."""
        if isinstance(rows, pd.DataFrame):
            if encoder.column not in rows:
                raise UserError(f"the table has no column {encoder.column!r}: it has {list(rows.columns)}")
            rows = rows[encoder.column]
        if isinstance(rows, Tensor) or np.asarray(rows).dtype.kind in "iu":
            return rows
        texts = list(rows)
        if isinstance(rows, str) or not all(isinstance(one, str) for one in texts):
            raise UserError("the rows are not a list of texts: expected one text for each example")
        return encoder(texts)

    def _numbers(self, labels: Sequence[str]) -> Tensor:
        return torch.from_numpy(number_names(labels, self.classes))

    def _rows_of_arrays(self) -> Schema:
        """Return the schema of files for a run without one; its mean and deviation are not used."""
        if has_several_inputs(self._like):
            raise UserError("the model takes several inputs, which no file holds: use results.predictor")
        if (dtype := _name_of(self.dtype)) not in DTYPES or not self.shape:
            raise UserError(
                f"the model takes {list(self.shape)} of {dtype}, which no file of a site's holds: use "
                "results.predictor in Python"
            )
        channels = self.shape[0]
        return Schema(self.classes, self.shape, (0.0,) * channels, (1.0,) * channels, dtype)

    def _outputs(self, inputs: Inputs, targets: Tensor | None) -> tuple[list[Tensor], float]:
        """Return the network's outputs, batch by batch, and their mean loss; 0 without targets."""
        network, count = self.model.network, count_rows(inputs)
        every = torch.arange(count)
        labels = torch.zeros(count, dtype=torch.int64) if targets is None else targets
        examples = Examples(inputs, labels, every, self.transform)
        batches, sums = [], []
        for outputs, batch in iterate_outputs(network, examples, range(num_batches(examples))):
            batches.append(outputs)
            if targets is not None:
                sums.append(Classification()(outputs, batch)[1])
        return batches, average_sums(sums, count).get(protocol.LOSS, 0.0)


def predictor_of(run: Path, name: str | None = None) -> Predictor:
    """Return the predictor of a run's model; ``name`` chooses among several.

    Raises
    ------
    UserError : where there is no such model, it is damaged, or classifies nothing
    """
    model = load_model(run, name)
    task = model.description.get("task")
    if task != Classification.__name__:
        raise UserError(
            f"{run} was trained for {task}: only classification has a predictor; results.model(run) "
            "returns the bare network"
        )
    predictor = Predictor(model)
    try:
        predictor.classes  # noqa: B018 - the network takes the rows that the file describes
        model.experiment.threads  # noqa: B018 - a damaged config.yaml raises here
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{run}: the model's file does not say what the model takes ({error!r})") from error
    return predictor


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
