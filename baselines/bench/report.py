"""Report benchmarks: medians, ratios and goals, on the terminal, in benchmarks.csv and benchmarks.md."""

import csv
import json
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from rich.table import Table

from baselines.engine.environment import provenance
from baselines.errors import UserError
from baselines.experiment.experiment import load
from baselines.reports.tables import markdown_table

COLUMNS = (
    *("workload", "subject", "quantity", "unit", "median", "low", "high", "repeats"),
    *("beside", "ratio", "ratio_low", "ratio_high", "at_most", "met"),
)
HEADINGS = ("workload", "contender", "quantity", "median (spread)", "beside others (spread)", "goal")
UNITS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
}

Measured = TypeVar("Measured")
Contenders = dict[str, Callable[[], float]]  # {name: a measurement}
Samples = dict[str, list[float]]  # {contender: one measurement per turn}
Goals = Mapping[str, Mapping[str, float | None]]  # {subject: {compared contender: goal}}


@dataclass(frozen=True)
class Spread:
    """The median, minimum and maximum of several measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of one or more measurements."""
        return cls(median(values), min(values), max(values), len(values))


def alternate(contenders: Mapping[str, Callable[[], Measured]], repeats: int) -> dict[str, list[Measured]]:
    """Measure the contenders alternately, ``repeats`` times each; return {name: measurements}."""
    samples: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            samples[name].append(measure())
    return samples


def round_seconds(one_round: Callable[[], object], rounds: int) -> float:
    """Return the seconds of a round: the median of all but the first."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        one_round()
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread of the ratios, taken turn by turn, as each turn's two sides are measured together."""
    return Spread.of([mine / other for mine, other in zip(ours, theirs, strict=True)])


def resident(process: int | str = "self") -> int:
    """Return a process' resident memory in bytes."""
    return _memory(process, "VmRSS")


def peak(process: int | str = "self") -> int:
    """Return a process' peak resident memory in bytes.

    ``resource.getrusage`` would be wrong: a process inherits the peak of its parent.
    """
    return _memory(process, "VmHWM")


def _memory(process: int | str, key: str) -> int:
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        raise UserError(f"memory is read from {status}: run this workload on Linux")
    lines = (line.split() for line in status.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{key}:")


@dataclass(frozen=True)
class Row:
    """One quantity of one subject, alone or compared with another's.

    Parameters
    ----------
    workload, subject, quantity : what was measured, of which contender
    unit : ``s``, ``B``, or empty for a share
    value : its spread over the repeats
    beside, ratio : the contender that it is divided by, and the spread of the ratios
    at_most : the goal for the ratio, or else for the value; None without a goal
    """

    workload: str
    subject: str
    quantity: str
    unit: str
    value: Spread
    beside: str = ""
    ratio: Spread | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without one."""
        judged = self.ratio or self.value
        return None if self.at_most is None else judged.median <= self.at_most

    def record(self) -> tuple[object, ...]:
        """Return the row of benchmarks.csv, in seconds and bytes."""
        value, quotient = self.value, self.ratio
        ratios = (quotient.median, quotient.low, quotient.high) if quotient else ("", "", "")
        goal = ("", "") if self.at_most is None else (self.at_most, "yes" if self.met else "no")
        subject = (self.workload, self.subject, self.quantity, self.unit)
        return (*subject, value.median, value.low, value.high, value.count, self.beside, *ratios, *goal)

    @property
    def beside_text(self) -> str:
        """The ratio and its contender as text; empty without a ratio."""
        return f"{_spread(self.ratio, 'x')} {self.beside}" if self.ratio else ""

    @property
    def goal_text(self) -> str:
        """The goal and whether it is met; empty without one."""
        if self.at_most is None:
            return ""
        limit = f"{self.at_most:.3g}x {self.beside}" if self.ratio else _short(self.at_most, self.unit)
        return f"≤ {limit}: {'met' if self.met else 'not met'}"


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a readable line for each contender's quantity, with all its comparisons."""
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row.workload, row.subject, row.quantity), []).append(row)
    return [
        (
            *named,
            _spread(own[0].value, own[0].unit),
            "; ".join(filter(None, (row.beside_text for row in own))),
            "; ".join(dict.fromkeys(filter(None, (row.goal_text for row in own)))),
        )
        for named, own in grouped.items()
    ]


def compared(workload: str, quantity: str, unit: str, samples: Samples, goals: Goals) -> list[Row]:
    """Return rows of each subject of ``goals`` compared with others, then of those others alone."""
    spreads = {name: Spread.of(values) for name, values in samples.items()}
    rows = []
    for mine, limits in goals.items():
        for other, goal in limits.items():
            quotient = ratio(samples[mine], samples[other])
            rows.append(Row(workload, mine, quantity, unit, spreads[mine], other, quotient, goal))
    others = dict.fromkeys(other for limits in goals.values() for other in limits)
    return [*rows, *(Row(workload, other, quantity, unit, spreads[other]) for other in others)]


def terminal(rows: Sequence[Row]) -> Table:
    """Return the rows as a table for the terminal."""
    out = Table(title="benchmarks: medians (least to greatest)")
    for heading in HEADINGS:
        out.add_column(heading, justify="right" if "spread" in heading else "left")
    for line in lines(rows):
        out.add_row(*line, style="red" if "not met" in line[-1] else None)
    return out


def write(rows: Sequence[Row], machine: Mapping[str, object], folder: Path) -> None:
    """Write benchmarks.csv and, with the machine's description, benchmarks.md."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "benchmarks.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *(row.record() for row in rows)])
    table = markdown_table(HEADINGS, lines(rows))
    described = "".join(f"- {key}: {_plain(value)}\n" for key, value in machine.items())
    (folder / "benchmarks.md").write_text(f"{table}\n{described}", encoding="utf-8")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value).translate({ord(c): None for c in '{}"[]'})


def _spread(spread: Spread, unit: str) -> str:
    """Return e.g. ``12.3 ms (11.9 to 13.1)``."""
    scale, name = _scale(spread.median, unit)
    middle, low, high = (_number(part / scale) for part in (spread.median, spread.low, spread.high))
    return f"{middle}{name} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _short(value: float, unit: str) -> str:
    scale, name = _scale(value, unit)
    return f"{value / scale:g}{name}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return a value's divisor and the unit to write after it."""
    for scale, name in UNITS.get(unit, ()):
        if value >= scale:
            return scale, f" {name}"
    return 1.0, unit if unit == "x" else f" {unit}".rstrip()


def describe_machine() -> dict[str, object]:
    """Return the machine's description, for the text below the table."""
    origin = provenance(load(""))
    hardware = origin["hardware"]
    return {
        "processor": f"{hardware['processor']}, {hardware['cores']} cores, {platform.system()}",
        "gpu": hardware["gpu"] or "none",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "versions": origin["versions"],
        "commit": origin["git_commit"] or "unknown",
        "started": time.strftime("%Y-%m-%d %H:%M %Z"),
    }


def machine_load() -> str:
    """Return the machine's load averages over 1, 5 and 15 minutes."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


@dataclass(frozen=True)
class Workload(ABC):
    """Something to measure; its fields are its sizes.

    Parameters
    ----------
    name : on the command line and in the table
    """

    name: str

    @abstractmethod
    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure the contenders alternately, ``repeats`` times; ``peers`` adds other frameworks.

        Raises
        ------
        UserError : when the data are not available
        """
