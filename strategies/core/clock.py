"""Clock: how long nodes take, in virtual seconds, so that simulated nodes differ in speed as real ones do.

Node k, sent a message at time t, begins when it is available next, and its reply arrives at

    a_k = next(t) + (bytes down + bytes up) / bandwidth_k + steps_k * seconds per step_k

The bytes are those of the message and of the reply, so that compression makes a node faster. The steps are
the local steps that the reply tells; of a ClientApp that tells none, its number of examples. A node that has
begun goes on to the end. Times are virtual: they depend on the seed, not on the machine or the runtime. The
server's own step, and evaluations on nodes, take no time.

A synchronous round ends with its last reply, at its ``deadline``, or with the first ``keep_first`` replies.
:mod:`baselines.engine.virtual_time` keeps that time, :mod:`.asynchronous` that of asynchronous strategies.
"""

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from flwr.app import Message

from strategies.shared import protocol
from strategies.shared.arrays import count_message_bytes
from strategies.shared.checks import require, require_count
from strategies.shared.flower_names import HasHooks
from strategies.shared.seeding import Purpose, generator

from .replies import metrics_of

POSITIVE_NUMBER = "a number above 0"


@dataclass(frozen=True)
class Profile:
    """What a node can do.

    Parameters
    ----------
    seconds_per_step : of local training
    bytes_per_second : down and up; ``inf`` sends at once
    windows : when the node is available, as (from, until) in seconds; empty: always
    period : after how many seconds the windows come again; None: never
    """

    seconds_per_step: float
    bytes_per_second: float
    windows: tuple[tuple[float, float], ...] = ()
    period: float | None = None

    def next_start(self, now: float) -> float:
        """Return the first time from ``now`` on at which the node is available; ``inf`` for never."""
        if not self.windows:
            return now
        since = 0.0 if self.period is None else now // self.period * self.period
        shifts = [0.0] if self.period is None else [since - self.period, since, since + self.period]
        starts = [
            max(now, shift + opens)
            for shift in shifts
            for opens, closes in self.windows
            if shift + closes > now
        ]
        return min(starts, default=math.inf)


@dataclass(frozen=True, kw_only=True)
class VirtualClock(HasHooks, ABC):
    """How long nodes take; a subclass says what each of them can do.

    Parameters
    ----------
    deadline : seconds after which a synchronous round ends; nodes that are later have failed. None: no end
    keep_first : with how many replies a synchronous round ends (over-selection): those of the other nodes
        are passed over, and have not failed. None: all
    """

    deadline: float | None = None
    keep_first: int | None = None

    def __post_init__(self) -> None:
        """Refuse a deadline, or a number of replies, of 0 or below."""
        valid = self.deadline is None or 0 < self.deadline < math.inf
        require(valid, "clock.deadline", self.deadline, "seconds, above 0, or null")
        require_count("clock.keep_first", self.keep_first, optional=True)

    @abstractmethod
    def profile(self, seed: int, partition_id: int) -> Profile:
        """Return what the node that holds a partition can do."""

    def require_nodes(self, num_nodes: int) -> None:
        """Raise ``ValueError`` where nobody knows the profile of one of ``num_nodes`` nodes."""
        return None

    def arrival(self, seed: int, partition_id: int, now: float, message: Message, reply: Message) -> float:
        """Return when a node's reply arrives that was sent its message at ``now``; ``inf`` for never."""
        profile, metrics = self.profile(seed, partition_id), metrics_of(reply)
        steps = metrics.get(protocol.LOCAL_STEPS, metrics.get(protocol.NUM_EXAMPLES, 0))
        assert isinstance(steps, int | float)
        num_bytes = count_message_bytes(message) + count_message_bytes(reply)
        duration = num_bytes / profile.bytes_per_second + steps * profile.seconds_per_step
        return profile.next_start(now) + duration


@dataclass(frozen=True, kw_only=True)
class ConstantClock(VirtualClock):
    """All nodes are equally fast.

    Parameters
    ----------
    seconds_per_step : of local training, above 0
    bytes_per_second : down and up; None sends at once
    available_share : the share of each ``available_period`` in which a node is available; each node's begins
        at a time of its own, drawn by seed and partition. 1: always
    available_period : seconds, e.g. of a day
    """

    seconds_per_step: float = 1.0
    bytes_per_second: float | None = 1e6
    available_share: float = 1.0
    available_period: float = 86400.0

    def __post_init__(self) -> None:
        """Refuse speeds and times that are not positive."""
        super().__post_init__()
        for name in ("seconds_per_step", "available_period"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"clock.{name}", value, POSITIVE_NUMBER)
        speed, share = self.bytes_per_second, self.available_share
        require(speed is None or speed > 0, "clock.bytes_per_second", speed, f"{POSITIVE_NUMBER}, or null")
        require(0 < share <= 1, "clock.available_share", share, "above 0, at most 1")

    def factors(self, draws: Iterable[float]) -> tuple[float, float]:
        """Return a node's factors on the seconds per step and the bandwidth, from two normal draws."""
        return 1.0, 1.0

    def profile(self, seed: int, partition_id: int) -> Profile:
        rng = generator(seed, Purpose.CLOCK, partition_id=partition_id)
        slowness, bandwidth = self.factors(rng.standard_normal(2).tolist())
        begins, length = float(rng.random()) * self.available_period, self.available_period
        windows = ((begins, begins + self.available_share * length),) if self.available_share < 1 else ()
        speed = math.inf if self.bytes_per_second is None else self.bytes_per_second * bandwidth
        return Profile(self.seconds_per_step * slowness, speed, windows, length)


@dataclass(frozen=True, kw_only=True)
class LognormalClock(ConstantClock):
    """Some nodes are far slower: seconds per step and bandwidth are log-normal over the nodes.

    ``seconds_per_step`` and ``bytes_per_second`` are the medians: a node has exp(spread z) times that, with a
    standard normal z of its own for each. Spreads of 0 are :class:`ConstantClock`.

    Parameters
    ----------
    spread : the standard deviation of the logarithm of the seconds per step; at 1 one node in six takes more
        than 2.7 times the median
    bandwidth_spread : the same of the bandwidth
    """

    spread: float = 1.0
    bandwidth_spread: float = 1.0

    def __post_init__(self) -> None:
        """Refuse spreads below 0, and those that no number can hold."""
        super().__post_init__()
        for name in ("spread", "bandwidth_spread"):
            require(0 <= getattr(self, name) <= 20, f"clock.{name}", getattr(self, name), "from 0 to 20")

    def factors(self, draws: Iterable[float]) -> tuple[float, float]:
        slowness, bandwidth = draws
        return math.exp(self.spread * slowness), math.exp(self.bandwidth_spread * bandwidth)


COLUMNS = ("node", "seconds_per_step", "bytes_per_second")
WINDOW_COLUMNS = ("available_from", "available_until")


def _with_windows(before: Profile | None, profile: Profile) -> Profile:
    """Return the profile of a node's rows so far and another; raise ``ValueError`` where they contradict."""
    if before is None:
        return profile
    if replace(before, windows=()) != replace(profile, windows=()):
        raise ValueError("another speed or bandwidth than in the node's rows above")
    if not (before.windows and profile.windows):
        raise ValueError("two rows of a node, and one has no window")
    return replace(before, windows=(*before.windows, *profile.windows))


@dataclass(frozen=True, kw_only=True)
class TraceClock(VirtualClock):
    """What each node can do is a row of a CSV file.

    Its columns are ``node`` (the partition), ``seconds_per_step`` and ``bytes_per_second`` (empty sends at
    once), and, where nodes are not always available, ``available_from`` and ``available_until`` in seconds.
    Several rows of a node are several windows; its speed and bandwidth are the same in each.

    Parameters
    ----------
    path : of the file
    period : after how many seconds the windows come again; None: never

    The file is read when the first profile is asked for.

    Raises
    ------
    ValueError : then, for a file that cannot be read, or is no such table
    """

    path: str
    period: float | None = None

    def __post_init__(self) -> None:
        """Refuse a period of 0 or below."""
        super().__post_init__()
        valid = self.period is None or 0 < self.period < math.inf
        require(valid, "clock.period", self.period, "seconds, above 0, or null")

    @cached_property
    def _profiles(self) -> dict[int, Profile]:
        try:
            with open(self.path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"clock.path={self.path} cannot be read: {error}") from error
        profiles: dict[int, Profile] = {}
        for number, row in enumerate(rows, start=2):
            try:
                node, profile = self._read_row(row)
                profiles[node] = _with_windows(profiles.get(node), profile)
            except (KeyError, TypeError, ValueError) as error:
                columns = ", ".join((*COLUMNS, *WINDOW_COLUMNS))
                raise ValueError(
                    f"clock.path={self.path}, line {number}: expected numbers above 0 under {columns} ({error})"
                ) from error
        return profiles

    def _read_row(self, row: dict[str, str]) -> tuple[int, Profile]:
        """Return a row's node and profile; raise ``ValueError`` or ``KeyError`` for an invalid row."""
        node, seconds = int(row["node"]), float(row["seconds_per_step"])
        bandwidth = float(row["bytes_per_second"] or math.inf)
        window = tuple(float(row[name]) for name in WINDOW_COLUMNS if (row.get(name) or "").strip())
        if node < 0 or not 0 < seconds < math.inf or not bandwidth > 0:
            raise ValueError("out of range")
        if window and not (len(window) == 2 and 0 <= window[0] < window[1] <= (self.period or math.inf)):
            raise ValueError("a window ends before it begins, or after the period")
        windows = ((window[0], window[1]),) if window else ()
        return node, Profile(seconds, bandwidth, windows, self.period)

    def require_nodes(self, num_nodes: int) -> None:
        if missing := [k for k in range(num_nodes) if k not in self._profiles]:
            raise ValueError(f"clock.path={self.path} has no row for node {missing[0]} of {num_nodes}")

    def profile(self, seed: int, partition_id: int) -> Profile:
        if partition_id not in self._profiles:
            raise ValueError(f"clock.path={self.path} has no row for node {partition_id}")
        return self._profiles[partition_id]
