"""Exported models: ONNX and TorchScript files that take raw rows and return probabilities.

The preprocessing and the softmax are inside, and the number of rows is free. The file holds classes,
columns and the rest of the model's description as JSON, under the key of
:mod:`~baselines.engine.saved_model`.
"""

import importlib.util
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baselines.errors import UserError
from clients import Normalize
from clients.examples import Transform, has_several_inputs

from .environment import name_file_in_errors
from .predictor import Predictor
from .saved_model import METADATA_KEY

ONNX, TORCHSCRIPT = ".onnx", ".pt"
LIBRARIES = ("onnx", "onnxruntime", "onnxscript")  # the extra: pip install -e '.[onnx]'
ROWS, PROBABILITIES = "rows", "probabilities"  # the names of the input and the output
MAX_ERROR_LENGTH = 300  # characters of an exporter's error
TOLERANCE = 1e-4  # between probabilities; libraries sum in different orders


class Probabilities(nn.Module):
    """Raw rows [n, ...] to probabilities [n, classes]: the preprocessing, the network, a softmax.

    Parameters
    ----------
    network : returns logits
    transform : turns raw rows into what it takes; None leaves them as they are
    """

    def __init__(self, network: nn.Module, transform: Transform | None) -> None:
        super().__init__()
        self.network = network
        self.transform = _Normalized(transform) if isinstance(transform, Normalize) else transform

    def forward(self, rows: Tensor) -> Tensor:
        """Return the probabilities; the rows are left as they are."""
        inputs = rows if self.transform is None else self.transform(rows.clone())
        return torch.softmax(self.network(inputs), 1).to(torch.float32)


class _Normalized(nn.Module):
    """:class:`~clients.Normalize` with its numbers as part of the model, where exporters look for them."""

    mean: Tensor
    std: Tensor

    def __init__(self, normalize: Normalize) -> None:
        super().__init__()
        self.scale = normalize.scale
        self.register_buffer("mean", torch.tensor(normalize.mean, dtype=torch.float64))
        self.register_buffer("std", torch.tensor(normalize.std, dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        kind = torch.float64 if rows.dtype == torch.float64 else torch.float32
        mean, std = self.mean.to(kind), self.std.to(kind)
        shape = (1, -1) + (1,) * (rows.ndim - 2)
        factor, offset = (1 / (self.scale * std)).view(shape), (mean / std).view(shape)
        return (rows.to(kind) * factor - offset).to(torch.float32)


def check_target(target: Path) -> None:
    """Reject a file that no model can be exported to.

    Raises
    ------
    UserError : for another suffix than .onnx and .pt, a folder that is missing, or missing libraries
    """
    if target.suffix not in (ONNX, TORCHSCRIPT):
        raise UserError(f"--export {target}: expected a file ending in {ONNX} or {TORCHSCRIPT}")
    if not target.parent.is_dir():
        raise UserError(f"--export {target}: there is no folder {target.parent}")
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if target.suffix == ONNX and missing:
        raise UserError(f"--export {target} needs {', '.join(missing)}: pip install -e '.[onnx]'")


def export(predictor: Predictor, target: Path) -> None:
    """Export a model that takes raw rows; write the file only if it agrees with the predictor.

    Raises
    ------
    UserError : for a file of another kind, and a model that cannot be exported, in one line
    OSError : where the file cannot be written
    """
    check_target(target)
    write, load = (_write_onnx, _load_onnx) if target.suffix == ONNX else (_write_script, _load_script)
    if has_several_inputs(predictor.model.experiment.dataset.test_inputs):
        raise UserError(f"{target}: a model of several inputs cannot be exported: use results.predictor")
    about = json.dumps(
        {**predictor.model.description, "classes": predictor.classes}, sort_keys=True, allow_nan=False
    )
    rows = _sample(predictor)
    module = Probabilities(predictor.model.network, predictor.transform).eval()
    with name_file_in_errors(target), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder, target.name)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # exporters warn of their own deprecations
                write(module, rows[:2], fresh, about)
        except OSError:
            raise
        except Exception as error:  # an exporter does not know an operation
            reason = f"{type(error).__name__}: {error}"[:MAX_ERROR_LENGTH]
            raise UserError(f"{target}: this model cannot be exported ({reason})") from error
        _compare(predictor, rows, load(fresh), target)
        os.replace(fresh, target)


def _sample(predictor: Predictor) -> Tensor:
    """Return random rows for export and comparison, around the mean where it is known."""
    draws = torch.Generator().manual_seed(0)
    shape = (5, *predictor.shape)
    if not predictor.dtype.is_floating_point:
        known = math.inf if predictor.encoder is None else predictor.encoder.num_tokens - 1
        most = int(min(torch.iinfo(predictor.dtype).max, 255, known))
        return torch.randint(0, most + 1, shape, dtype=predictor.dtype, generator=draws)
    rows = torch.randn(shape, generator=draws, dtype=predictor.dtype)
    if isinstance(normalize := predictor.transform, Normalize):
        mean, std = (
            torch.tensor(one, dtype=predictor.dtype).view(1, -1, *(1,) * (rows.ndim - 2))
            for one in (normalize.mean, normalize.std)
        )
        rows = (rows * std + mean) * normalize.scale
    return rows


def _compare(
    predictor: Predictor, rows: Tensor, exported: Callable[[Tensor], np.ndarray], target: Path
) -> None:
    """Reject an exported model that differs from the predictor, or takes only the exported number of rows."""
    for count in (1, len(rows)):
        expected = predictor(rows[:count])
        if expected.num_diverged:
            raise UserError(f"{target}: the model's outputs are not finite: the run has diverged")
        try:
            probabilities = exported(rows[:count])
        except Exception as error:  # the runtimes'
            reason = str(error)[:MAX_ERROR_LENGTH]
            raise UserError(
                f"{target}: the exported model does not take {count} rows ({reason})"
            ) from error
        if not np.allclose(probabilities, expected.probabilities, rtol=0, atol=TOLERANCE):
            raise UserError(f"{target}: the exported model and the run's do not agree: not written")


def _write_script(module: nn.Module, rows: Tensor, target: Path, about: str) -> None:
    jit: Any = torch.jit  # it has no types
    jit.save(jit.trace(module, (rows,), check_trace=False), str(target), _extra_files={METADATA_KEY: about})


def _load_script(path: Path) -> Callable[[Tensor], np.ndarray]:
    jit: Any = torch.jit
    model = jit.load(str(path))
    return lambda rows: model(rows).detach().numpy()


def _write_onnx(module: nn.Module, rows: Tensor, target: Path, about: str) -> None:
    program: Any = torch.onnx.export(
        module,
        (rows,),
        input_names=[ROWS],
        output_names=[PROBABILITIES],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
        verbose=False,
    )
    program.model.metadata_props[METADATA_KEY] = about
    program.save(str(target))


def _load_onnx(path: Path) -> Callable[[Tensor], np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda rows: session.run([PROBABILITIES], {ROWS: rows.numpy()})[0]
