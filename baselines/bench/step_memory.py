"""The most memory that a server step takes, in a process of its own.

The process holds the model and the replies; what it has beyond them at its peak, in stacking the replies
and in two steps (the second has the optimizer's state), stands beside the bytes of the stacked updates.
"""

import json
import subprocess
import sys

from baselines.experiment.overrides import ROOT

from .classification import collected, played, prepared
from .timing import Spread, peak, resident


def of(model: str, nodes: int, parts: tuple[str, ...]) -> dict[str, tuple[Spread, Spread]]:
    """Return for each part of a strategy the bytes, and their ratio to the stacked updates' bytes."""
    found = {}
    for part in parts:
        command = [sys.executable, "-m", __name__, model, str(nodes), part]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        bytes_, stacked = json.loads(done.stdout.splitlines()[-1])
        found[part] = (Spread.of([bytes_]), Spread.of([bytes_ / stacked]))
    return found


def main(model: str, nodes: str, part: str) -> None:
    """Print the bytes beyond model and replies, and those of the stacked updates."""
    asking, replies = played(model, int(nodes))
    strategy = prepared(model, int(nodes), part)
    before = resident()
    updates = collected(asking, replies)
    for server_round in (1, 2):
        strategy._step(server_round, updates)
    deltas = updates.deltas
    print(json.dumps([peak() - before, deltas.numel() * deltas.element_size()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
