"""python -m baselines.predict: classify the rows of a new file with the model of a run.

    python -m baselines.predict outputs/first new.csv --output predictions.csv
    python -m baselines.predict outputs/first images/ --model node3
    python -m baselines.predict outputs/first --export model.onnx

--output writes a line for each row: its number from 1 (or the image's file name), the predicted class, and
the probability of each class. A row has no prediction where the model's outputs are not finite.

DATA is a table with the schema's columns, an .npz file, or a folder of images. Give raw values, neither
scaled nor normalised.

Labels may be missing. For the rows that have one, accuracy, loss and the recall of each class are printed,
defined as in the run's own evaluation. They are NaN where a row has no prediction.

--export writes a model that takes raw rows and returns probabilities: .onnx (pip install -e '.[onnx]') or
TorchScript (.pt).

Only use runs of people whom you trust: loading a model imports the class that config.yaml in RUN names. The
class comes from this installation; nothing else in RUN is executed.

Exit status: 0, or 2 after a user's mistake.
"""

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from .datasets.site_files import SiteFile
from .engine import exported
from .engine.environment import write_atomically
from .engine.predictor import Measures, Prediction, Predictor, predictor_of
from .errors import UserError
from .help import HelpParagraphs


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict and export as requested; return the exit status."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        _check(options)
        predictor = predictor_of(options.run, options.model)
        if options.data is not None:
            _predict(predictor, options.data, options.output)
        if options.export is not None:
            exported.export(predictor, options.export)
            print(f"written: {options.export}: raw rows {_shape(predictor)} in, probabilities out")
    except (UserError, OSError) as error:  # OSError: where nothing can be read or written
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baselines.predict",
        description=__doc__,
        formatter_class=HelpParagraphs,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the folder of a run with save= or checkpoint_every=")
    add("data", type=Path, nargs="?", metavar="DATA", help="a table, an .npz file, or a folder of images")
    add(
        "--output",
        type=Path,
        metavar="CSV",
        help="where to write the predictions; without it, only measure",
    )
    add("--model", metavar="NAME", help="which model, of a run with several")
    add("--export", type=Path, metavar="FILE", help="write the model as .onnx or .pt")
    return parser


def _check(options: argparse.Namespace) -> None:
    """Refuse a command line without a task, or one that would overwrite the data."""
    data, output = options.data, options.output
    if data is None and options.export is None:
        raise UserError("nothing to do: give a file or folder to classify, or --export model.onnx")
    if data is None and output is not None:
        raise UserError("--output and the data go together: give the file or folder to classify, too")
    if output is not None and output.resolve() == data.resolve():
        raise UserError(f"--output {output} is the data: choose another file")
    if output is not None and not output.parent.is_dir():
        raise UserError(f"--output {output}: there is no folder {output.parent}")
    if options.export is not None:
        exported.check_target(options.export)


def _predict(predictor: Predictor, data: Path, output: Path | None) -> None:
    """Write the predictions to ``output``, if given, and print how well they agree with the labels."""
    rows = predictor.read(data)
    if output is None and not rows.labels:
        raise UserError(f"{data} has no labels to measure with: give --output, where to write")
    torch.set_num_threads(predictor.model.experiment.threads)  # as in the run, for identical results
    inputs = predictor.raw(rows.inputs)
    labelled = [k for k, label in enumerate(rows.labels) if label]
    is_partial = 0 < len(labelled) < len(inputs)
    prediction, measures = predictor.predict(inputs, None if is_partial else rows.labels or None)
    if is_partial:
        _, measures = predictor.predict(inputs[labelled], [rows.labels[k] for k in labelled])
    total, diverged = len(prediction.classes), prediction.num_diverged
    if diverged == total:
        raise UserError(
            f"the model's outputs are not finite for any of the {total} rows of {data}: the run has "
            "diverged; choose another run, or save=best"
        )
    if output is not None:
        write_atomically(output, _table(predictor.classes, rows, prediction))
        print(f"written: {output}, {total} rows")
    if diverged:
        print(f"without a prediction: {diverged} of {total} rows, where the model's outputs are not finite")
    if is_partial:
        print(f"measured: {len(labelled)} of {total} rows, those with a label")
    if measures is not None:
        _print_measures(measures)


def _table(classes: Sequence[str], rows: SiteFile, prediction: Prediction) -> str:
    """Return the predictions as CSV text."""
    names: Sequence[object] = rows.files or range(1, len(prediction.classes) + 1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heading = "row" if rows.files is None else "file"
    writer.writerow([heading, "predicted", *(f"probability of {name}" for name in classes)])
    for name, chosen, shares in zip(names, *prediction, strict=True):
        numbers = [""] * len(classes) if chosen is None else [f"{share:.9g}" for share in shares]
        writer.writerow([name, "" if chosen is None else chosen, *numbers])
    return text.getvalue()


def _print_measures(measures: Measures) -> None:
    print(f"accuracy: {measures.accuracy:.6g}")
    print(f"loss: {measures.loss:.6g}")
    for name, (hits, total) in measures.recall.items():
        print(f"recall of {name}: {hits / total:.6g} ({hits:.0f} of {total})")


def _shape(predictor: Predictor) -> str:
    return f"[n, {', '.join(map(str, predictor.shape))}]"


if __name__ == "__main__":
    sys.exit(main())
