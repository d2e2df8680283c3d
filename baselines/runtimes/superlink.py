"""superlink: a real deployment on this machine's loopback.

One ``flower-superlink``, one ``flower-supernode`` per node, and the app submitted with ``flwr run``, all
as separate programs that talk over the network: gRPC on Flower 1.39, HTTP from 1.40 on. A deployment on
several machines is the same with other addresses; README shows its commands.
"""

import contextlib
import json
import os
import socket
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from baselines.engine import run_folder
from baselines.errors import RunFailed, UserError
from baselines.experiment.config import ROOT
from strategies.shared.checks import require

from .programs import HOST, Programs

LINK = "florilegium"


@dataclass(frozen=True)
class SuperLink:
    """Start a SuperLink and its SuperNodes, run one experiment on them, and end what was started.

    Parameters
    ----------
    start_timeout : how many seconds each program may take to listen
    """

    start_timeout: float = 120.0
    gives_node_states: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a time limit that is none."""
        require(self.start_timeout > 0, "runtime.start_timeout", self.start_timeout, "above 0")

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment; its ServerApp writes into ``folder``, logs into its ``logs``.

        Raises
        ------
        UserError : when there is no app to submit, because this is not the project's folder but a wheel, or
            another process is running in ``folder``
        RunFailed : when a program did not start or the run did not finish, with the end of its log
        """
        if not (ROOT / "pyproject.toml").exists():
            what = "runtime=superlink submits the project's folder, but this is a wheel, which has none"
            raise UserError(f"{what}: install a clone with pip install -e ., or try runtime=ray")
        folder = folder.resolve()
        if run_folder.in_use(folder):  # before anything of its run is touched
            raise UserError(run_folder.taken(folder))
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        result = folder / "environment.json"
        result.unlink(missing_ok=True)  # an earlier run's would be taken for this one's
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
            Programs(Path(home), _environment(home), logs) as programs,
        ):
            link = self._deploy(programs, num_nodes)
            _write_configuration(Path(home), link, overrides, folder)
            command = ["flwr", "run", str(ROOT), LINK, "--stream", "--run-config", f"{home}/run.toml"]
            if programs.follow("run", command) != 0:
                raise RunFailed(f"flwr run failed; {programs.tail('run')}")
            _check(result, _status_in_flower(programs), programs.tail("run"))

    def _deploy(self, programs: Programs, num_nodes: int) -> int:
        """Start the SuperLink and the SuperNodes; return the SuperLink's port when all listen."""
        link, fleet, *ports = _free_ports(num_nodes + 2)
        programs.start("superlink", _superlink_command(link, fleet))
        programs.wait_for("superlink", link, self.start_timeout)
        nodes = {f"supernode-{k}": port for k, port in enumerate(ports)}
        for k, (name, port) in enumerate(nodes.items()):
            programs.start(name, _supernode_command(k, num_nodes, port, link, fleet))
        for name, port in nodes.items():
            programs.wait_for(name, port, self.start_timeout)
        return link


def _environment(home: str) -> dict[str, str]:
    """Return the programs' environment: a Flower home of their own, no telemetry, nothing installed."""
    scripts = sysconfig.get_path("scripts")  # where this interpreter's Flower has its programs
    environment = os.environ | {
        "FLWR_HOME": home,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if root := environment.get("FLORILEGIUM_DATA"):
        environment["FLORILEGIUM_DATA"] = str(Path(root).resolve())  # they start in another directory
    return environment


def _superlink_command(link: int, fleet: int) -> list[str]:
    command = ["flower-superlink", "--insecure", "--host", HOST, "--port", str(link)]
    return [*command, "--fleet-api-address", f"{HOST}:{fleet}"] if _fleet_is_grpc() else command


def _supernode_command(k: int, num_nodes: int, port: int, link: int, fleet: int) -> list[str]:
    superlink = f"{HOST}:{fleet if _fleet_is_grpc() else link}"
    node_config = f"partition-id={k} num-partitions={num_nodes}"
    command = ["flower-supernode", "--insecure", "--superlink", superlink]
    return [*command, "--host", HOST, "--port", str(port), "--node-config", node_config]


def _fleet_is_grpc() -> bool:
    """Say how SuperNodes reach the SuperLink: by gRPC at its Fleet address, or by HTTP at its own."""
    major, minor = (int(part) for part in version("flwr").split(".")[:2])
    return (major, minor) < (1, 40)


def _write_configuration(home: Path, link: int, overrides: str, folder: Path) -> None:
    """Write what ``flwr run`` reads: the link's address and the run configuration.

    A file, because ``--run-config`` takes no value that holds both kinds of quotes.
    """
    config = f'[superlink.{LINK}]\naddress = "{HOST}:{link}"\ninsecure = true\n'
    (home / "config.toml").write_text(config)
    values = {"overrides": overrides, "output": str(folder)}
    # A JSON string is a TOML string as long as nothing is escaped as surrogates.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    (home / "run.toml").write_text("".join(lines), encoding="utf-8")


def _status_in_flower(programs: Programs) -> str:
    """Return what the SuperLink says of its one run, e.g. ``finished:completed``."""
    listed = subprocess.run(
        ["flwr", "list", LINK, "--format", "json"],
        env=programs.environment,
        cwd=programs.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    with contextlib.suppress(ValueError, LookupError):
        return str(json.loads(listed.stdout)["runs"][0]["status"])
    return f"no answer ({listed.stdout.strip()}{listed.stderr.strip()})"


def _check(result: Path, in_flower: str, log: str) -> None:
    """Raise ``RunFailed`` unless the run finished for the ServerApp and for Flower.

    ``flwr run`` ends with 0 either way.
    """
    status = json.loads(result.read_text())["status"] if result.exists() else "not begun"
    if status.startswith("failed: "):
        raise RunFailed(f"the run {status}")  # its log has been printed
    if status != "finished" or in_flower != "finished:completed":
        raise RunFailed(f"the run is {status}; Flower says {in_flower}; {log}")


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
