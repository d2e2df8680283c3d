"""The machine that measured, in words: times vary by it."""

import os
import platform
import time

from baselines.engine.provenance import provenance
from baselines.experiment import experiment


def describe() -> dict[str, object]:
    """Return what stands under the table."""
    told = provenance(experiment.load(""))
    hardware = told["hardware"]
    return {
        "processor": f"{hardware['processor']}, {hardware['cores']} cores, {platform.system()}",
        "gpu": hardware["gpu"] or "none",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "versions": told["versions"],
        "commit": told["git_commit"] or "unknown",
        "started": time.strftime("%Y-%m-%d %H:%M %Z"),
    }


def load() -> str:
    """Return how busy the machine is: processes that want to run, over 1, 5 and 15 minutes."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())
