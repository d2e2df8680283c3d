"""Source: the hash by which two processes know that they run the same code."""

import hashlib
from functools import cache

from .config import ROOT

# What decides results, also as git understands it.
COVERED = ("strategies/**/*.py", "clients/**/*.py", "baselines/**/*.py", "conf/**/*.yaml")


@cache
def source_hash() -> str:
    """Return a hash of this installation's code and configuration: equal code, equal results."""
    digest = hashlib.sha256()
    for pattern in COVERED:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
