"""checkpoint: what writing metrics, saving a checkpoint and resuming from it cost beside a round.

The program's own functions are timed one by one, after rounds of a single step, whose model and strategy
have the size of those after a full round.
"""

import contextlib
import io
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from baselines.apps import client_app_of
from baselines.engine import checkpoint
from baselines.engine.loggers import Progress
from baselines.engine.rounds import Rounds
from baselines.engine.run_folder import RunFolder
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid

from .report import Goals, Row, Workload, compared
from .timing import Samples, alternate, run_experiment, with_rounds

SHARE = 0.02  # of a round, for metrics and a checkpoint together
METRICS = {f"metric_{k}": k / 3 for k in range(10)}  # as many as a round of FedAvg has


@dataclass(frozen=True)
class Checkpoint(Workload):
    """Seconds a round.

    Parameters
    ----------
    setting : the overrides of a full round
    rounds : of short rounds in a measurement
    short : the overrides that make a round short
    """

    setting: str
    rounds: int = 10
    short: str = "client.local_epochs=null client.local_steps=1"

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure the costs beside a full round."""
        full = with_rounds(self.setting, 2)
        short = with_rounds(f"{self.setting} {self.short}", self.rounds)
        found = alternate(
            {"round": lambda: {"full round": run_experiment(full).round}, "costs": lambda: _costs(short)},
            repeats,
        )
        turns = [a | b for a, b in zip(found["round"], found["costs"], strict=True)]
        samples: Samples = {name: [turn[name] for turn in turns] for name in turns[0]}
        goals: Goals = {"metrics and a checkpoint": {"full round": SHARE}, "resuming": {"full round": None}}
        return compared(self.name, "cost", "s", samples, goals)


def _costs(overrides: str) -> dict[str, float]:
    """Return seconds a round: of writing metrics and a checkpoint, and of resuming from it."""
    this = experiment.load(overrides)
    writing, resuming = [], []
    # Beside the working directory, not in /tmp, which may be memory.
    with tempfile.TemporaryDirectory(dir=".") as name, contextlib.redirect_stdout(io.StringIO()):
        folder = RunFolder(Path(name), this)
        grid = InlineGrid(client_app_of(overrides), this.settings.num_nodes)
        rounds = Rounds(this, grid, folder, Progress(this.settings.rounds))
        with folder.alone(), folder.running():
            for server_round in range(1, this.settings.rounds + 1):
                rounds.train(server_round)
                started = time.perf_counter()
                folder.write(server_round, "train", "global", METRICS)
                folder.write(server_round, "test", "global", METRICS)
                rounds.checkpoint(server_round).save(folder.path)
                written = time.perf_counter()
                saved = checkpoint.load(folder.path)
                assert saved is not None, "it has just been written"
                rounds.resume_from(saved)
                writing.append(written - started)
                resuming.append(time.perf_counter() - written)
    return {"metrics and a checkpoint": median(writing), "resuming": median(resuming)}
