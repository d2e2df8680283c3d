"""What an experiment is, and how it is launched."""

import os

# Nobody is told about a run unless the user says so; both are read when flwr and ray are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
