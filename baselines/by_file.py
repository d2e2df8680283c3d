"""Refuse a command called by its file, as in ``python baselines/compare.py``: its imports would fail.

Commands import this module first, under its bare name, if called by file.
"""

import sys

print("error: call the commands as modules, e.g. python -m baselines.run", file=sys.stderr)
raise SystemExit(2)
