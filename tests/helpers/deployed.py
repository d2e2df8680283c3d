"""A federation of sites on the loopback, started by what ``provision`` made, for tests."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from baselines.federation.__main__ import main
from baselines.runtimes import commands, guardian
from baselines.runtimes.processes import HOST, Programs
from baselines.runtimes.superlink import _free_ports

NAMES = ("north", "south", "odd")  # the last has a label that the schema has not


class Deployed:
    """A federation whose programs run.

    Parameters
    ----------
    folder : has federation.yaml, the data and the schema
    programs : that were started, by name
    port : of the SuperLink's Control API
    """

    def __init__(self, folder: Path, programs: Programs, port: int) -> None:
        self.folder, self.programs, self.port = folder, programs, port
        self.file = folder / "federation.yaml"
        self.made = folder / "lakes"

    def start(self, role: str) -> None:
        """Start a role as its administrator does."""
        self.programs.start(role, [str(self.made / role / "start")])
        if role == "superlink":
            self.programs.wait_for(role, self.port, 120)

    def kill(self, role: str) -> None:
        """End a role as a power cut does."""
        process = self.programs._processes[role]
        process.kill()
        process.wait()

    def kill_server_app(self) -> None:
        """End the run's ServerApp as a lack of memory does."""
        killed = 0
        for pid in guardian.find_marked(str(self.programs.directory)):
            with contextlib.suppress(OSError):  # it has just ended
                if "flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        assert killed, "no ServerApp is running"

    def bring_back(self, site: str) -> None:
        """Start a killed site until it stays, as its service does.

        For a minute the SuperLink takes it for connected still, and refuses it.
        """
        log = self.programs.logs / f"{site}.log"
        self.start(site)
        process = self.programs._processes[site]
        wait_until(lambda: process.poll() is not None or "SuperNode ID" in log.read_text())
        if process.poll() is not None:
            self.bring_back(site)

    def statuses(self) -> dict[str, str]:
        """Return each registered node's status, by its id."""
        done = subprocess.run(
            commands.list_command("lakes"),
            capture_output=True,
            env=commands.environment(),
            check=True,
            text=True,
        )
        nodes = json.loads(done.stdout)["nodes"]
        return {node["node-id"]: node["status"] for node in nodes}

    def submit(self, name: str, *overrides: str) -> int:
        """Submit an experiment of two sites; return the exit status."""
        return main(self.submission(name, *overrides))

    def submission(self, name: str, *overrides: str) -> list[str]:
        """Return what follows ``python -m baselines.federation`` to submit an experiment of two sites."""
        return ["submit", "lakes", *self.experiment(), *overrides, "--output", str(self.folder / name)]

    def experiment(self) -> list[str]:
        """Return the overrides of an experiment of two sites."""
        return [
            "dataset=local",
            f"dataset.schema={self.folder / 'schema.yaml'}",
            "num_nodes=2",
            "node_test_fraction=0.25",
            "checkpoint_every=1",
        ]


def wait_until(holds: Callable[[], bool], seconds: float = 900.0) -> None:
    """Return when something holds; fail where it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it has not come true"
        time.sleep(0.1)


@contextlib.contextmanager
def deployed(
    folder: Path, names: Sequence[str] = NAMES, write: Callable[[Path], str] | None = None
) -> Iterator[Deployed]:
    """Provision a federation, start its SuperLink, register the sites, and start them.

    ``write`` puts each site's data and schema.yaml into the folder, and returns the ending of their names.
    """
    ending = (write or _write_data)(folder)
    port, fleet_port, *ports = _free_ports(2 + len(names))
    lines = [
        f"  {n}: {{data: '{folder / n}.{ending}', port: {p}}}" for n, p in zip(names, ports, strict=True)
    ]
    head = f"name: lakes\nhost: localhost\nlisten: {HOST}\nport: {port}\nfleet_port: {fleet_port}\n"
    head += f"outputs: {folder}\nschema: schema.yaml\nsites:\n"
    (folder / "federation.yaml").write_text(head + "\n".join(lines) + "\n")
    assert main(["provision", str(folder / "federation.yaml")]) == 0
    environment = commands.environment(str(folder / "lakes" / "operator"))
    (folder / "logs").mkdir()
    with pytest.MonkeyPatch.context() as patch, Programs(folder, environment, folder / "logs") as programs:
        patch.setitem(os.environ, "FLWR_HOME", environment["FLWR_HOME"])
        federation = Deployed(folder, programs, port)
        federation.start("superlink")
        assert main(["register", str(federation.file)]) == 0
        for name in names:
            federation.start(name)
        yield federation


def _write_data(folder: Path) -> str:
    inputs, targets = load_digits(return_X_y=True)
    inputs, names = inputs.reshape(-1, 1, 8, 8).astype("float32"), np.array(list("abcdefghij"))[targets]
    for k, name in enumerate(NAMES[:2]):
        np.savez(folder / f"{name}.npz", inputs=inputs[k::2], targets=names[k::2])
    np.savez(folder / "odd.npz", inputs=inputs[:99], targets=np.where(names == "c", "z", names)[:99])
    assert main(["schema", str(folder / "north.npz"), "--out", str(folder / "schema.yaml")]) == 0
    return "npz"
