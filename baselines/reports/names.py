"""Display names, and a colour and dash per method, from ``conf/names.yaml``.

Every figure, table and page takes its names and lines from here, so that a method looks the same in all.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

NAMES = Path(__file__).parents[2] / "conf" / "names.yaml"

# Okabe and Ito's colours, safe for the colour-blind; dashes and marks keep lines distinct in grey
COLOURS = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "black": "#000000",
    "sky": "#56B4E9",
    "orange": "#E69F00",
    "grey": "#767676",
}
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 1.5)),
    "dotted": (0, (1, 1.2)),
    "dashdot": (0, (5, 1.5, 1, 1.5)),
    "longdash": (0, (8, 2)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = 7 * len(DASHES) * len(MARKS)  # the number of distinct looks; grey is only for methods


@cache
def _table() -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(NAMES))
    assert isinstance(content, dict)
    return {str(part): value for part, value in content.items()}


def names_of(cells: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Return the names of the cells' columns and values, and the entries of the methods among the values."""
    values_of: dict[str, set[str]] = {}
    for column, value in (item for keys in cells for item in keys.items()):
        values_of.setdefault(column, set()).add(value)
    methods, table = {value for values in values_of.values() for value in values}, _table()
    used = _pick(table["methods"], methods)
    used |= _pick(table["methods"], {str(own["like"]) for own in used.values() if "like" in own})
    return {
        "columns": _pick(table["columns"], values_of),
        "phrases": _pick(table["phrases"], values_of),
        "values": {c: _pick(table["values"].get(c, {}), values) for c, values in sorted(values_of.items())},
        "methods": used,
    }


def _pick(names: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: names[key] for key in sorted(names) if key in keys}


def column_name(column: str) -> str:
    """Return the display name of a key column, for a heading or an axis."""
    return str(_table()["columns"].get(column, column.replace("_", " ")))


def value_name(value: str, column: str = "") -> str:
    """Return the display name of a column's value or a method; other values are unchanged."""
    own = _table()["values"].get(column, {})
    if value in own:
        return str(own[value])
    method = _table()["methods"].get(value)
    return str(method["name"]) if method else value


def cell_name(keys: Mapping[str, str]) -> str:
    """Return the values of a cell's keys in words: "FashionMNIST, dominant labels, 50 nodes"."""
    return ", ".join(_phrase(column, value) for column, value in keys.items())


def _phrase(column: str, value: str) -> str:
    phrases = _table()["phrases"]
    if column in phrases:
        return str(phrases[column]).format(value_name(value, column))
    name = value_name(value, column)
    return name if not is_number(name) else f"{column_name(column)} {name}"


def is_number(text: str) -> bool:
    """Say whether a key's value is a number, such as a rate."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def setting_name(label: str) -> str:
    """Return a label of ``baselines.compare``, such as ``fedavg, mask=agreement``, in display names."""
    return ", ".join(_part_name(part) for part in label.split(", "))


def _part_name(part: str) -> str:
    key, equals, value = part.partition("=")
    if not equals:
        return value_name(part)
    return value_name(value, key) if value in _table()["values"].get(key, {}) else part


def setting_names(labels: Sequence[str]) -> dict[str, str]:
    """Return the display name of each label; labels whose names would be equal keep their own."""
    names = {label: setting_name(label) for label in labels}
    counts = Counter(names.values())
    return {label: name if counts[name] == 1 else label for label, name in names.items()}


def method_style(name: str) -> tuple[str, str] | None:
    """Return the names of a method's colour and dash, given its key or display name; None for no method."""
    methods = _table()["methods"]
    key = next((key for key, one in methods.items() if name in (key, one["name"])), None)
    if key is None:
        return None
    one = methods[methods[key].get("like", key)]
    return str(one["colour"]), str(one["dash"])


def line_styles(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the colour, dash and mark of each line.

    A method has its own colour and dash, used for the first of its lines (``fedavg, lr=0.1``). Its other
    lines, and those of no method, get the remaining styles in a fixed order.
    """
    own = [method_style(label) or method_style(label.split(", ")[0]) for label in labels]
    first = {style: place for place, style in reversed(list(enumerate(own))) if style}
    rest = (style for style in _in_order(LINES) if style not in first)
    styles = []
    for place, style in enumerate(own):
        is_kept = style is not None and first[style] == place
        colour, dash = style if style is not None and is_kept else next(rest)
        mark = MARKS[place % len(MARKS)]
        styles.append({"color": COLOURS[colour], "linestyle": DASHES[dash], "marker": mark})
    return styles


def dash_name(style: dict[str, Any]) -> str:
    """Return the name of a line's dash."""
    return next(name for name, dash in DASHES.items() if dash == style["linestyle"])


def _in_order(count: int) -> list[tuple[str, str]]:
    colours = [colour for colour in COLOURS if colour != "grey"]
    return list(islice(zip(cycle(colours), cycle(DASHES), strict=False), count))
