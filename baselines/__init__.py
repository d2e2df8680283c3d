"""Experiments, and the commands that run them."""

import atexit
import gc
import os
import sys
from importlib.util import find_spec
from pathlib import Path

# No telemetry unless the user opts in; both are read when flwr and ray are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# Torch reads this at import: tensors of 2 MB and more use huge pages where Linux has them. A server step on a
# ResNet is two to three times as fast, as fresh memory comes in 512 times fewer pieces.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

# At exit Python searches all objects for garbage, half a million from torch alone: a second for each of a
# deployment's many programs. Frozen objects are skipped.
atexit.register(gc.freeze)


def _require_own_packages() -> None:
    """Refuse another package with the name of one of this project's, as in a user's own folder.

    Raises
    ------
    ImportError : in one line that names the folder
    SystemExit : with status 2 after that line, for a command (python -m baselines.run)
    """
    root = Path(__file__).resolve().parents[1]
    for name in ("strategies", "clients"):
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or []) if spec else []
        if folders and Path(folders[0]).resolve() == root / name:
            continue
        where = folders[0] if folders else (spec.origin if spec else f"nothing in {root}")
        line = f"{where} is found in place of Florilegium's own {name}: rename it, or leave its folder"
        if sys.argv[:1] == ["-m"]:  # Python is looking for a command's module
            print(f"error: {line}", file=sys.stderr)
            raise SystemExit(2)
        raise ImportError(line)


_require_own_packages()
