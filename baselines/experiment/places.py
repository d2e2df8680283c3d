"""Places: where the project lies, and its options."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
SHARED = ("base", "common")  # templates that options are made of, not options themselves
