"""superlink: a real deployment on this machine's loopback.

One ``flower-superlink``, one ``flower-supernode`` per node, and the app submitted with ``flwr run``. They
are separate programs that talk over the network: gRPC on Flower 1.39, HTTP from 1.40 on. A deployment on
several machines differs only in its addresses; docs/deployment.md shows the commands.
"""

import contextlib
import json
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from baselines.engine import run_folder
from baselines.engine.environment import DIVERGED
from baselines.engine.metrics import check_divergence
from baselines.errors import RunFailed, UserError
from baselines.experiment import closed, experiment
from baselines.experiment.overrides import ROOT, format_flow
from strategies.shared.checks import require

from . import commands, credentials, sites
from .processes import HOST, Programs
from .staging import copy_app

LINK = "florilegium"
TRUST_ENVIRONMENT = {
    closed.TRUST_VARIABLE: "1"
}  # owner and submitter are the same person: any class may be named


@dataclass(frozen=True)
class SuperLink:
    """Start a SuperLink and its SuperNodes, run one experiment on them, and end what was started.

    Parameters
    ----------
    start_timeout : how many seconds each program may take to listen
    sites : {name: path} of data of the nodes' own, for dataset=local; None where nodes hold partitions
    tls : whether programs talk over TLS, with certificates made for this run
    authenticate : whether the SuperLink lets in only nodes whose keys, made for this run, are registered
    """

    start_timeout: float = 120.0
    sites: Mapping[str, str] | None = None
    tls: bool = False
    authenticate: bool = False
    gives_node_states: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse an invalid time limit, and authentication without TLS, which Flower lacks."""
        require(self.start_timeout > 0, "runtime.start_timeout", self.start_timeout, "above 0")
        for name in ("tls", "authenticate"):
            value = getattr(self, name)
            require(isinstance(value, bool), f"runtime.{name}", value, "true or false")
        if self.authenticate:
            require(self.tls, "runtime.tls", self.tls, "true where runtime.authenticate=true")

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment; its ServerApp writes into ``folder``, the programs log into its ``logs``.

        Raises
        ------
        UserError : when there is no app to submit, as in a wheel, or another process runs in ``folder``
        RunFailed : when a program did not start or the run did not finish, with the end of its log
        RunDiverged : when its last evaluation is not finite
        """
        commands.require_app(ROOT, "runtime=superlink", "or try runtime=ray")
        own_data = experiment.load(overrides).dataset.site is not None
        paths = sites.check_sites(self.sites or {}, num_nodes, own_data)
        node_configs = sites.node_configs(paths, num_nodes)
        absolute = [f"runtime.sites={format_flow(paths)}"] if paths else []  # programs have another folder
        sent = shlex.join([*shlex.split(overrides), *absolute])
        folder = folder.resolve()
        if run_folder.is_in_use(folder):  # before changing any file of its run
            raise UserError(run_folder.describe_use(folder))
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        result = folder / "environment.json"
        before = result.read_bytes() if result.exists() else b""  # of an earlier run
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
            Programs(Path(home), commands.environment(home) | TRUST_ENVIRONMENT, logs) as programs,
        ):
            self._deploy(programs, node_configs)
            run_config = Path(home) / "run.toml"
            run_config.write_text(commands.run_config(sent, str(folder)), encoding="utf-8")
            app = copy_app(Path(home) / "app")
            if programs.follow("run", commands.submit(app, LINK, run_config)) != 0:
                raise RunFailed(f"flwr run failed; {programs.tail('run')}")
            _check(result, before, _status_in_flower(programs), programs.tail("run"))
        check_divergence(experiment.load(overrides), folder)

    def _deploy(self, programs: Programs, node_configs: list[str]) -> None:
        """Start the SuperLink and the SuperNodes; return when all listen."""
        port, fleet_port, *ports = _free_ports(len(node_configs) + 2)
        server = commands.Server(HOST, HOST, port, fleet_port, self.authenticate)
        home = programs.directory
        tls = _tls(home) if self.tls else None
        ca = tls.ca if tls else None
        (home / "config.toml").write_text(server.link(LINK, Path(ca) if ca else None))
        programs.start("superlink", server.superlink(tls))
        programs.wait_for("superlink", port, self.start_timeout)
        nodes = {f"supernode-{k}": port for k, port in enumerate(ports)}
        keys = {name: _register_node(programs, name) for name in nodes if self.authenticate}
        for config, (name, port) in zip(node_configs, nodes.items(), strict=True):
            programs.start(name, server.supernode(config, port, ca, keys.get(name)))
        for name, port in nodes.items():
            programs.wait_for(name, port, self.start_timeout)


def _tls(folder: Path) -> commands.Tls:
    """Make temporary certificates in ``folder``."""
    credentials.authority(folder)
    credentials.server_certificate(folder, folder, HOST)
    return commands.Tls(*(str(folder / name) for name in ("ca.pem", "server.pem", "server.key")))


def _register_node(programs: Programs, name: str) -> str:
    """Make a node's key, register it, and return its file."""
    key = programs.directory / name
    credentials.key_pair(key)
    log = f"register-{name}"
    if programs.follow(log, commands.register(f"{key}.pub", name, LINK)) != 0:
        raise RunFailed(f"{name} was not registered; {programs.tail(log)}")
    return str(key)


def _status_in_flower(programs: Programs) -> str:
    """Return the status of the SuperLink's only run, e.g. ``finished:completed``."""
    listed = subprocess.run(
        commands.runs(LINK),
        env=programs.environment,
        cwd=programs.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    with contextlib.suppress(ValueError, LookupError):
        return str(json.loads(listed.stdout)["runs"][0]["status"])
    return f"no answer ({listed.stdout.strip()}{listed.stderr.strip()})"


def _check(result: Path, before: bytes, in_flower: str, log: str) -> None:
    """Raise ``RunFailed`` unless the run finished for the ServerApp and for Flower, or has diverged.

    ``flwr run`` exits with 0 either way. ``before`` is the content of ``result`` before the run.
    """
    now = result.read_bytes() if result.exists() else b""
    status = json.loads(now)["status"] if now != before else "not begun"
    if status.startswith("failed: "):
        raise RunFailed(f"the run {status}")  # its log has been printed
    if status == DIVERGED:
        return
    if status != "finished" or in_flower != "finished:completed":
        raise RunFailed(f"the run is {status}; Flower says {in_flower}; {log}")


def _free_ports(count: int) -> list[int]:
    """Return free ports of the loopback."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
