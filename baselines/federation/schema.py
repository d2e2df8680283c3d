"""schema: write down what data look like, for all sites of a federation to agree on."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from baselines.datasets import site_files
from baselines.datasets.local import measured_of
from baselines.errors import UserError

HEADER = """\
# What the data of every site look like: dataset=local dataset.schema={name}
# Labels count from 0 in the order of classes; every site normalises with this mean and std.
"""


def write(data: Path, label: str | None, columns: Sequence[str] | None, out: Path) -> None:
    """Write the schema of the data at ``data``; say what it holds.

    Parameters
    ----------
    data : of one site
    label : of a table, the column with the labels
    columns : of a table, those that a model is to take; None for all others, ids too
    out : the file to write

    Raises
    ------
    UserError : for columns of what is no table
    DataError : for data that cannot be read
    """
    if columns is not None and not site_files.is_table(data):
        raise UserError(f"--columns {','.join(columns)}: {data} is no table, and has no columns")
    if columns is not None and label in columns:
        raise UserError(f"--columns {','.join(columns)}: {label} is the label, and no input")
    content = site_files.read(data, label, columns)
    schema = measured_of(data, content, label)
    text = OmegaConf.to_yaml(OmegaConf.create(schema.as_dict()))
    out.write_text(HEADER.format(name=out.name) + text)
    print(text, end="")
    for line in reading_notes(content):
        print(line)
    if content.columns and columns is None:
        print("it takes every column but the label: leave ids and the like out with --columns a,b,c")
    print(f"written: {out}; it has class names, means and deviations of this site's data, and no example")


def reading_notes(content: site_files.SiteFile) -> list[str]:
    """Return what reading left out or changed, with counts: a line for each."""
    lines = []
    if count := sum(content.left_out.values()):
        files = count + len(content.labels)
        reasons = ", ".join(f"{number} {reason}" for reason, number in content.left_out.items())
        lines.append(f"left out: {count} of {files} files ({count / files:.1%}): {reasons}")
    for what, number in content.tidied.items():
        lines.append(f"tidied: {number} {what} (blanks around them stripped, signs composed)")
    return lines
