"""Experiments: data, partitions, models, runtimes, and the papers' tables."""

import os

# Torch reads this when it is loaded: tensors of 2 MB and more lie in huge pages where Linux offers them. A
# server step on a ResNet is two to three times as fast, as fresh memory comes in 512 times fewer pieces.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
