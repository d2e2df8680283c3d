"""What an experiment is, and how it is launched."""

import atexit
import gc
import os
import sys
from importlib.util import find_spec
from pathlib import Path

# Nobody is told about a run unless the user says so; both are read when flwr and ray are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# Torch reads this when it is loaded: tensors of 2 MB and more lie in huge pages where Linux offers them. A
# server step on a ResNet is two to three times as fast, as fresh memory comes in 512 times fewer pieces.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# Python looks through all objects for garbage when a program ends, and torch alone makes half a million of them: a
# second for each of a deployment's many programs. Frozen, they go with the process.
atexit.register(gc.freeze)


def _require_own_packages() -> None:
    """Refuse another package that the path has in the place of one of ours, as in a user's own folder.

    Raises
    ------
    ImportError : in one line that names the folder
    SystemExit : with status 2 after that line, where a command is called (python -m baselines.run)
    """
    root = Path(__file__).resolve().parents[1]
    for name in ("strategies", "clients"):
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or []) if spec else []
        if folders and Path(folders[0]).resolve() == root / name:
            continue
        where = folders[0] if folders else (spec.origin if spec else f"nothing in {root}")
        line = f"{where} is found in the place of Florilegium's own {name}: rename it, or leave its folder"
        if sys.argv[:1] == ["-m"]:  # Python looks for the module of a command
            print(f"error: {line}", file=sys.stderr)
            raise SystemExit(2)
        raise ImportError(line)


_require_own_packages()
