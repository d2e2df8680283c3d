"""schema: write down what data look like, for all sites of a federation to agree on."""

from pathlib import Path

from omegaconf import OmegaConf

from baselines.datasets.local import measured

HEADER = """\
# What the data of every site look like: dataset=local dataset.schema={name}
# Labels count from 0 in the order of classes; every site normalises with this mean and std.
"""


def write(data: Path, label: str | None, out: Path) -> None:
    """Write the schema of the data at ``data``; say what it holds.

    Raises
    ------
    UserError : for data that cannot be read
    """
    found = measured(data, label)
    text = OmegaConf.to_yaml(OmegaConf.create(found.as_dict()))
    out.write_text(HEADER.format(name=out.name) + text)
    print(text, end="")
    print(f"written: {out}; it has class names, means and deviations of this site's data, and no example")
