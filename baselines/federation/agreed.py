"""Read federation.yaml, the file that states who takes part in a federation, and where."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.datasets import site_files
from baselines.datasets.local import Schema, measure_content
from baselines.errors import UserError
from baselines.experiment.overrides import read_schema_file as read_schema
from baselines.runtimes import commands
from baselines.runtimes.commands import Server
from baselines.runtimes.sites import NAME
from strategies.shared import protocol

EXAMPLE_PAGE = "see docs/deployment.md"
TOP_LEVEL_KEYS = (
    "name",
    "host",
    "listen",
    "port",
    "fleet_port",
    "database",
    "folder",
    "outputs",
    "schema",
    "sites",
)


@dataclass(frozen=True)
class Site:
    """One site.

    Parameters
    ----------
    data : the path of its data, on its own machine
    public_key : the file that it has sent; None if its keys are made here
    port : of its SuperNode, for its own ClientApp on the loopback; distinct for sites on one machine
    revoked : whether it is excluded
    privacy, min_noise : the first demands of its site.yaml: local or central privacy, and the least noise
        multiplier; None for no demand
    """

    name: str
    data: str
    public_key: Path | None = None
    port: int = 9094
    revoked: bool = False
    privacy: str | None = None
    min_noise: float | None = None


@dataclass(frozen=True)
class Federation:
    """The content of federation.yaml.

    Parameters
    ----------
    name : of the link, as in ``flwr run . NAME``
    server : where the SuperLink is
    folder : where certificates, keys and start commands are kept
    outputs : the folder of submitted runs on the SuperLink's machine, relative to the SuperLink's folder
    schema : the sites' agreed schema; None if not known yet
    """

    name: str
    server: Server
    folder: Path
    sites: tuple[Site, ...]
    schema: Schema | None = None
    outputs: str = "outputs"

    @property
    def operator(self) -> Path:
        """The folder for submitting and registering: a Flower home with the link."""
        return self.folder / "operator"

    def public_key(self, site: Site) -> Path:
        """Return the file with a site's public key."""
        return site.public_key or self.folder / site.name / "key.pub"


def read(file: Path) -> Federation:
    """Read a federation's file.

    Raises
    ------
    UserError : for a file that cannot be read, or has other content
    """
    try:
        content = OmegaConf.to_container(OmegaConf.create(file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read ({error}): {EXAMPLE_PAGE}") from error
    except (YAMLError, ValueError) as error:
        raise UserError(f"{file} is not YAML: {error}") from error
    content = _only(content, TOP_LEVEL_KEYS, str(file))
    host, database = _text(content, "host", file), str(content.get("database", "superlink.db"))
    listen = str(content.get("listen", "0.0.0.0"))
    ports = _port(content, "port", 8000, str(file)), _port(content, "fleet_port", 9092, str(file))
    if ports[0] == ports[1] and commands.fleet_is_grpc():
        raise UserError(f"{file}: port and fleet_port are both {ports[0]}: choose two")
    name = _name(_text(content, "name", file), file)
    sites = content.get("sites")
    if not isinstance(sites, Mapping) or not sites:
        raise UserError(f"{file} has no sites: {EXAMPLE_PAGE}")
    federation = Federation(
        name,
        Server(host, listen, *ports, authenticate=True, database=database),
        (file.parent / str(content.get("folder", name))).resolve(),
        tuple(_site(str(key), value, file) for key, value in sites.items()),
        read_schema(file.parent / str(content["schema"])) if content.get("schema") is not None else None,
        str(content.get("outputs", Federation.outputs)),
    )
    _refuse_shared_keys(federation, file)
    return federation


def _refuse_shared_keys(federation: Federation, file: Path) -> None:
    """Refuse two sites with the same key, which the SuperLink could not distinguish."""
    held: dict[str, str] = {}
    for site in federation.sites:
        path = federation.public_key(site)
        words = path.read_text(errors="replace").split() if path.is_file() else []
        key = " ".join(words[:2])  # without the comment
        if key in held:
            raise UserError(
                f"{file}: sites {held[key]} and {site.name} have the same key: make another for one of them"
            )
        if key:
            held[key] = site.name


def _site(name: str, content: Any, file: Path) -> Site:
    where = f"{file}: site {_name(name, file)}"
    if name in ("ca", "superlink", "operator"):
        raise UserError(f"{where} is the name of another folder: choose another")
    content = _only(content, [field.name for field in fields(Site)][1:], where)
    data, revoked, sent = content.get("data"), content.get("revoked", False), content.get("public_key")
    if not isinstance(data, str) or '"' in data or "\n" in data:
        raise UserError(f"{where}: data={data!r}, expected the path of its data, without quotes")
    if not isinstance(revoked, bool):
        raise UserError(f"{where}: revoked={revoked!r}, expected true or false")
    privacy, noise = content.get("privacy"), content.get("min_noise")
    if privacy not in (None, protocol.LOCAL, protocol.CENTRAL):
        raise UserError(f"{where}: privacy={privacy!r}, expected local or central")
    if noise is not None and not (type(noise) in (int, float) and 0 <= noise < float("inf")):
        raise UserError(f"{where}: min_noise={noise!r}, expected a number, 0 or above")
    key = None if sent is None else (file.parent / str(sent)).resolve()
    return Site(name, data, key, _port(content, "port", Site.port, where), revoked, privacy, noise)


def _only(content: Any, known: Any, where: str) -> dict[str, Any]:
    """Return a mapping if it has only known keys."""
    if not isinstance(content, dict):
        raise UserError(f"{where}: expected {', '.join(known)}")
    if other := [str(key) for key in content if key not in known]:
        raise UserError(f"{where} has {', '.join(other)}: expected {', '.join(known)}")
    return content


def _text(content: dict[str, Any], key: str, file: Path) -> str:
    value = content.get(key)
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]+", value):
        raise UserError(f"{file}: {key}={value!r}, expected letters, digits and . _ -: {EXAMPLE_PAGE}")
    return value


def _name(name: str, file: Path) -> str:
    if not re.fullmatch(NAME, name):
        raise UserError(f"{file}: {name!r} is not a valid name: expected letters, digits, . _ and -")
    return name


def _port(content: dict[str, Any], key: str, default: int, where: str) -> int:
    value = content.get(key, default)
    if type(value) is not int or not 0 < value < 2**16:
        raise UserError(f"{where}: {key}={value!r}, expected a port, 1 to 65535")
    return value


# schema: write the schema of a site's data, for all sites of a federation to agree on.


HEADER = """\
# What the data of every site look like: dataset=local dataset.schema={name}
# Labels count from 0 in the order of classes; every site normalises with this mean and std.
"""


def write_schema(data: Path, label: str | None, columns: Sequence[str] | None, out: Path) -> None:
    """Write and print the schema of the data at ``data``.

    Parameters
    ----------
    data : of one site
    label : of a table, the column with the labels
    columns : of a table, the model's inputs; None for all other columns, even ids
    out : the file to write

    Raises
    ------
    UserError : for columns where the data are not a table
    DataError : for data that cannot be read
    """
    if columns is not None and not site_files.is_table(data):
        raise UserError(f"--columns {','.join(columns)}: {data} is not a table and has no columns")
    if columns is not None and label in columns:
        raise UserError(f"--columns {','.join(columns)}: {label} is the label, not an input")
    content = site_files.read(data, label, columns)
    schema = measure_content(data, content, label)
    text = OmegaConf.to_yaml(OmegaConf.create(schema.as_dict()))
    out.write_text(HEADER.format(name=out.name) + text)
    print(text, end="")
    for line in reading_notes(content):
        print(line)
    if content.columns and columns is None:
        print("it takes every column but the label: leave ids and the like out with --columns a,b,c")
    print(f"written: {out}; it has class names, means and deviations of this site's data, and no example")


def reading_notes(content: site_files.SiteFile) -> list[str]:
    """Return lines with counts of what reading left out or changed."""
    lines = []
    if count := sum(content.left_out.values()):
        files = count + len(content.labels)
        reasons = ", ".join(f"{number} {reason}" for reason, number in content.left_out.items())
        lines.append(f"left out: {count} of {files} files ({count / files:.1%}): {reasons}")
    for what, number in content.tidied.items():
        lines.append(f"tidied: {number} {what} (blanks around them stripped, signs composed)")
    return lines
