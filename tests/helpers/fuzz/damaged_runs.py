"""Runs with a damaged file, taken up again or compared: right results, or one line that names the file."""

import atexit
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from baselines import compare
from baselines.engine import rounds
from helpers.fuzz.command import Ended, apart, ended, launched
from helpers.fuzz.verdict import Result, died, not_one_line

SETTING = ("num_nodes=2", "model=softmax", "checkpoint_every=2")
FILES = ("metrics.csv", "config.yaml", "environment.json", "checkpoint/latest.pt")
STATES = ("finished", "interrupted", "shorter")  # the last: finished after fewer rounds than asked for now
Damage = Callable[[Path, Random], None]


def _cut(path: Path, random: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * random.randrange(10) // 10])


def _block(path: Path, random: Random, written: Callable[[int], bytes]) -> None:
    data = bytearray(path.read_bytes())
    start, end = (len(data) * tenth // 10 for tenth in sorted(random.sample(range(11), 2)))
    data[start:end] = written(end - start)
    path.write_bytes(data)


def _zeroed(path: Path, random: Random) -> None:
    _block(path, random, bytes)


def _overwritten(path: Path, random: Random) -> None:
    _block(
        path,
        random,
        lambda count: bytes(random.randrange(256) for _ in range(min(count, 1000))).ljust(count),
    )


def _a_byte(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    place = random.randrange(len(data))
    data[place] = random.choice((data[place] ^ 1, ord("7"), ord(" "), 0))
    path.write_bytes(data)


def _a_word(path: Path, random: Random) -> None:
    """Put another value in the place of one that stands between separators."""
    text = path.read_bytes().decode("latin-1")
    sign = random.choice([sign for sign in (",", ": ", "\n") if sign in text] or [""])
    parts = text.split(sign) if sign else [text]
    parts[random.randrange(len(parts))] = random.choice(
        ("abc", "", "3", "null", "[1]", "nan", '"open', "-1e999")
    )
    path.write_bytes(sign.join(parts).encode("latin-1"))


def _missing(path: Path, random: Random) -> None:
    path.unlink()


def _another_runs(path: Path, random: Random) -> None:
    name = path.as_posix().rpartition("/run/")[2]
    shutil.copyfile(original("finished", seed=1) / name, path)


DAMAGES: dict[str, Damage] = {
    "cut": _cut,
    "zeroed": _zeroed,
    "overwritten": _overwritten,
    "a byte": _a_byte,
    "a word": _a_word,
    "missing": _missing,
    "another run's": _another_runs,
}


@cache
def original(state: str, seed: int = 0) -> Path:
    """Return the folder of an undamaged run in this state, made once."""
    parent = tempfile.mkdtemp(prefix="fuzz-")
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    folder = Path(parent) / "run"
    train = rounds.Rounds.train

    def train_until_killed(self: rounds.Rounds, server_round: int) -> None:
        if state == "interrupted" and server_round == 4:
            raise KeyboardInterrupt
        train(self, server_round)

    count = 2 if state == "shorter" else 4
    killed = mock.patch.object(rounds.Rounds, "train", train_until_killed)
    with killed, contextlib.suppress(KeyboardInterrupt):
        launched(_arguments(folder, count, seed))
    return folder


def draw(random: Random) -> tuple[str, str, str, int]:
    """Return a state, a file, a damage and the seed of its details."""
    return (
        random.choice((*STATES, "compared", "compared")),
        random.choice(FILES),
        random.choice([*DAMAGES, "cut", "overwritten", "a byte", "a word"]),
        random.randrange(2**32),
    )


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Damage a run, use it, judge what came of it."""
    state, name, damage, seed = draw(random)
    run = folder / "run"
    shutil.copytree(original("finished" if state == "compared" else state), run)
    DAMAGES[damage](run / name, Random(seed))
    outcome, fault = _compared(run, name) if state == "compared" else _resumed(run, name)
    return Result(outcome, f"{state}, {name}, {damage}: {fault}" if fault else "", repeat)


def _resumed(run: Path, name: str) -> tuple[str, str]:
    outcome = launched([*_arguments(run, 4, 0), "resume=true"])
    if fault := died(outcome) or (outcome.status == 2 and not_one_line(outcome, [Path(name).name])):
        return "", fault
    if outcome.status == 2:
        return "2, one line that names the file", ""
    whole = original("finished")
    if _lines(run) != _lines(whole):
        return "", "accepted: other metrics"
    if _config(run) != _config(whole):
        return "", "accepted: another config.yaml"
    if json.loads((run / "environment.json").read_text())["status"] != "finished":
        return "", "accepted: not finished"
    return "0, results as of the undamaged run", ""


def _compared(run: Path, name: str) -> tuple[str, str]:
    actual, whole = comparison(run), comparison(original("finished"))
    if fault := died(actual) or (actual.status == 2 and not_one_line(actual, [Path(name).name])):
        return "", fault
    if actual.status == 2:
        return "2, one line that names the file", ""
    if actual.out.replace(str(run), "") == whole.out.replace(str(original("finished")), ""):
        return "0, results as of the undamaged run", ""
    if str(run) in actual.err + actual.out.replace(f"figure: {run}", ""):
        return "0, the damaged run left out by name", ""
    return "", "accepted: another table"


def comparison(run: Path) -> Ended:
    """Compare a run with an undamaged one of another seed."""
    folders = [str(run), str(original("finished", seed=1))]
    with apart():
        return ended(lambda: compare.main([*folders, "--figure", f"{run}/table.png"]))


def _arguments(folder: Path, count: int, seed: int) -> list[str]:
    return [*SETTING, f"rounds={count}", f"seed={seed}", f"hydra.run.dir={folder}"]


def _config(run: Path) -> list[bytes]:
    """Return the lines of config.yaml but for that which says how the run was taken up."""
    path = run / "config.yaml"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith(b"resume:")]


def _lines(run: Path) -> list[str]:
    """Return the lines of metrics.csv but for the values that are times."""
    lines = (run / "metrics.csv").read_text().splitlines()
    return [line.rpartition(",")[0] if "seconds," in line else line for line in lines]
