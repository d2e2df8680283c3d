"""Finished runs of the paper ``tiny``, written without training."""

import json
from pathlib import Path

from baselines.engine.environment import checksums
from baselines.reproduce.plan import Trial, plan, table_of


def trials_in(output: Path) -> list[Trial]:
    table = table_of("tiny", "table1")
    return plan(table, table.cells(), [0], "full", [], output)


def finished_run(
    trial: Trial, accuracy: float, versions: dict[str, str], name: str = "", extra: str = ""
) -> Path:
    """Write the finished run of a trial as a machine with these versions leaves it."""
    folder = trial.folder.with_name(name) if name else trial.folder
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "latest.pt").write_bytes(b"large")
    rows = ["round,split,model,metric,value", *(f"{r},test,global,accuracy,{accuracy}" for r in range(5))]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "config.yaml").write_text("a: 1\n")
    environment = {
        "overrides": f"{' '.join(trial.overrides)} {extra} resume=true checkpoint_every=1",
        "seed": trial.seed,
        "identity": folder.name,
        "git_commit": "abc",
        "source_hash": "def",
        "versions": {**versions, "flwr": "1.39.0"},
        "hardware": {"processor": "a processor", "cores": 2, "device": "cuda:0", "gpu": "a card"},
        "status": "finished",
        "wall_seconds": 12.0,
        "metrics_size": (folder / "metrics.csv").stat().st_size,
        "checksums": checksums(folder),
    }
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder
