"""What a reader of the pages has who types a command."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from baselines.runtimes.superlink import _free_ports
from helpers.checkout import ROOT


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of somebody who has never run Flower; end the SuperLink that it leaves."""
    port, control = _free_ports(2)
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLWR_")}  # it installs dependencies
    env |= {"FLWR_HOME": str(tmp_path / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"}
    env |= {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port), "FLWR_LOCAL_CONTROL_API_PORT": str(control)}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    env["RAY_ADDRESS"] = "local"  # not the Ray cluster that a test beside this one has started
    env["PYTHONPATH"] = str(ROOT)  # as pip install -e . does
    yield env
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if env["FLWR_HOME"].encode() in line.read_bytes():
                os.kill(int(line.parent.name), signal.SIGTERM)
