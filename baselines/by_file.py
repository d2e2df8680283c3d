"""Refuse a command that is called by its file, as ``python baselines/compare.py``: its imports would fail.

Such a program imports this module before anything else, under its bare name.
"""

import sys

print("error: call the commands as modules, e.g. python -m baselines.run", file=sys.stderr)
raise SystemExit(2)
