"""What an experiment is, and how it is launched."""

import os

# Nobody is told about a run unless the user says so; both are read when flwr and ray are imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# Torch reads this when it is loaded: tensors of 2 MB and more lie in huge pages where Linux offers them. A
# server step on a ResNet is two to three times as fast, as fresh memory comes in 512 times fewer pieces.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
