"""Files that are there whole: an interruption or a full disk leaves the old one as it was."""

import os
from pathlib import Path

from .environment import naming


def write(target: Path, text: str) -> None:
    """Write a text file beside ``target``, then put it in its place."""
    fresh = target.with_suffix(".tmp")
    try:
        with naming(target):
            fresh.write_text(text, encoding="utf-8", newline="\n")
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
