"""superlink: a real deployment on this machine's loopback.

One ``flower-superlink``, one ``flower-supernode`` per node, and the app submitted with ``flwr run``, all
as separate programs that talk over the network: gRPC on Flower 1.39, HTTP from 1.40 on. A deployment on
several machines is the same with other addresses; README shows its commands.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from baselines.config import ROOT
from strategies.checks import require

HOST = "127.0.0.1"
LINK = "florilegium"


@dataclass(frozen=True)
class SuperLink:
    """Start a SuperLink and its SuperNodes, run one experiment on them, and end what was started.

    Parameters
    ----------
    start_timeout : how many seconds the SuperLink may take to listen
    """

    start_timeout: float = 60.0

    def __post_init__(self) -> None:
        """Refuse a time limit that is none."""
        require(self.start_timeout > 0, "runtime.start_timeout", self.start_timeout, "above 0")

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment; its ServerApp writes into ``folder``, logs into its ``logs``.

        Raises
        ------
        RuntimeError : when the run did not finish, with the end of its log
        """
        folder = folder.resolve()
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as home, _ending() as start:
            environment = _environment(home)
            link, fleet, *ports = _free_ports(num_nodes + 2)
            start(_superlink_command(link, fleet), environment, home, logs / "superlink.log")
            self._wait_for(link, logs / "superlink.log")
            for k, port in enumerate(ports):
                command = _supernode_command(k, num_nodes, port, link, fleet)
                start(command, environment, home, logs / f"supernode-{k}.log")
            _submit(environment, home, link, overrides, folder)
        _check(folder)

    def _wait_for(self, port: int, log: Path) -> None:
        """Return when something listens on the port."""
        deadline = time.monotonic() + self.start_timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                return
            time.sleep(0.2)
        raise RuntimeError(f"the SuperLink does not listen; the end of {log}:\n{_tail(log)}")


def _environment(home: str) -> dict[str, str]:
    """Return the children's environment: their own Flower home, no telemetry, nothing installed."""
    scripts = sysconfig.get_path("scripts")
    return os.environ | {
        "FLWR_HOME": home,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _superlink_command(link: int, fleet: int) -> list[str]:
    command = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(link)]
    return [*command, "--fleet-api-address", f"{HOST}:{fleet}"] if _fleet_is_grpc() else command


def _supernode_command(k: int, num_nodes: int, port: int, link: int, fleet: int) -> list[str]:
    superlink = f"{HOST}:{fleet if _fleet_is_grpc() else link}"
    node_config = f"partition-id={k} num-partitions={num_nodes}"
    command = ["flower-supernode", "--insecure", "--superlink", superlink, "--port", str(port)]
    return [*command, "--node-config", node_config]


def _fleet_is_grpc() -> bool:
    """Say how SuperNodes reach the SuperLink: by gRPC at its Fleet address, or by HTTP at its own."""
    major, minor = (int(part) for part in version("flwr").split(".")[:2])
    return (major, minor) < (1, 40)


def _submit(environment: dict[str, str], home: str, link: int, overrides: str, folder: Path) -> None:
    """Run the app with ``flwr run``, its log streamed to this process' output."""
    (Path(home) / "config.toml").write_text(
        f'[superlink.{LINK}]\naddress = "{HOST}:{link}"\ninsecure = true\n'
    )
    run_config = Path(home) / "run.toml"
    run_config.write_text(f"overrides = {json.dumps(overrides)}\noutput = {json.dumps(str(folder))}\n")
    command = ["flwr", "run", str(ROOT), LINK, "--stream", "--run-config", str(run_config)]
    done = subprocess.run(command, env=environment, cwd=home, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"flwr run ended with exit status {done.returncode}; see {folder / 'logs'}")


def _check(folder: Path) -> None:
    """Raise ``RuntimeError`` unless the ServerApp wrote that the run finished; flwr run does not tell."""
    path = folder / "environment.json"
    status = json.loads(path.read_text())["status"] if path.exists() else "not started"
    if status != "finished":
        log = folder / "logs" / "superlink.log"
        raise RuntimeError(f"the run is {status!r}; the end of {log}:\n{_tail(log)}")


Start = Callable[[list[str], dict[str, str], str, Path], None]


@contextlib.contextmanager
def _ending() -> Iterator[Start]:
    """Give a function that starts a program in a neutral directory; end all of them on the way out.

    SuperLink and SuperNode end their own children when they are terminated.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], environment: dict[str, str], directory: str, log: Path) -> None:
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        processes.append(process)

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield start
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
