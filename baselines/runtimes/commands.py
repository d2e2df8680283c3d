"""Commands: start the programs of a deployment, for ``runtime=superlink`` and for a federation's sites.

One builder for both, so that tests on the loopback run the same commands as institutions do.
"""

import json
import os
import shlex
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from baselines.engine.environment import git_commit
from baselines.errors import UserError

SETTINGS = {  # of every program: no telemetry, no update check, no installing of torch per run
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass(frozen=True)
class Tls:
    """The files by which a SuperLink proves its identity.

    Parameters
    ----------
    ca : the authority's certificate, which all participants have
    certificate, key : the SuperLink's own
    """

    ca: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Server:
    """Where a SuperLink listens, and what it requires of sites.

    Parameters
    ----------
    host : the name by which others reach it
    listen : the address that it listens on
    port : of the Control API, for runs and registrations; from Flower 1.40 on also for sites
    fleet_port : for sites on Flower 1.39, which use gRPC
    authenticate : whether sites must sign with a registered key; only with TLS
    database : a file that survives a restart; None keeps everything in memory
    """

    host: str
    listen: str
    port: int
    fleet_port: int
    authenticate: bool = False
    database: str | None = None

    def superlink(self, tls: Tls | None = None) -> list[str]:
        """Return the command that starts the SuperLink."""
        command = ["flower-superlink", "--host", self.listen, "--port", str(self.port)]
        if fleet_is_grpc():
            command += ["--fleet-api-address", f"{self.listen}:{self.fleet_port}"]
        if tls is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", tls.ca, "--ssl-certfile", tls.certificate]
            command += ["--ssl-keyfile", tls.key]
        command += ["--enable-supernode-auth"] if self.authenticate else []
        return command + (["--database", self.database] if self.database else [])

    def supernode(
        self, node_config: str, port: int, ca: str | None = None, key: str | None = None
    ) -> list[str]:
        """Return the command that starts a SuperNode; ``port`` is for its own ClientApp, on the loopback.

        Without ``ca`` the connection is plain; ``key`` is the site's private key.
        """
        address = f"{self.host}:{self.fleet_port if fleet_is_grpc() else self.port}"
        command = ["flower-supernode", "--superlink", address, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--root-certificates", ca] if ca else ["--insecure"]
        command += ["--auth-supernode-private-key", key] if key else []
        return [*command, "--node-config", node_config]

    def link(self, name: str, ca: Path | None = None) -> str:
        """Return the section of Flower's ``config.toml`` for submitters, with an absolute path."""
        security = f"root-certificates = {toml(str(ca.resolve()))}" if ca else "insecure = true"
        return f"[superlink.{name}]\naddress = {toml(f'{self.host}:{self.port}')}\n{security}\n"


def register(public_key: str, name: str, link: str) -> list[str]:
    """Return the command that registers a site."""
    return ["flwr", "supernode", "register", public_key, link, "--name", name, "--format", "json"]


def list_command(link: str) -> list[str]:
    """Return the command that lists a SuperLink's registered sites."""
    return ["flwr", "supernode", "list", link, "--format", "json"]


def unregister(node_id: str, link: str) -> list[str]:
    """Return the command that removes a site's registration."""
    return ["flwr", "supernode", "unregister", node_id, link, "--format", "json"]


def require_app(root: Path, who: str, otherwise: str = "and submit from there") -> None:
    """Raise ``UserError`` if the code is not in a folder that can be submitted."""
    if not (root / "pyproject.toml").exists():
        raise UserError(
            f"{who} submits the project's folder, but this is a wheel, which has none: install a clone "
            f"with pip install -e ., {otherwise}"
        )


def submit(app: Path, link: str, run_config: Path) -> list[str]:
    """Return the command that submits an app and shows its log."""
    return ["flwr", "run", str(app), link, "--stream", "--run-config", str(run_config)]


def runs(link: str) -> list[str]:
    """Return the command that lists a SuperLink's runs, the latest first."""
    return ["flwr", "list", link, "--format", "json"]


def run_config(overrides: str, output: str) -> str:
    """Return the run configuration as TOML, with the commit, which the submitted bundle lacks.

    It goes into a file, because ``--run-config`` takes no value with both kinds of quotes.
    """
    values = {"overrides": overrides, "output": output, "commit": git_commit() or ""}
    return "".join(f"{key} = {toml(value)}\n" for key, value in values.items())


def script(
    command: list[str],
    settings: Mapping[str, str] | None = None,
    first: list[str] | None = None,
) -> str:
    """Return a shell script that starts a program in the script's own folder.

    Only its user can read the files that it writes. ``settings`` are further environment variables; if
    the command ``first`` fails, nothing is started.
    """
    variables = SETTINGS | dict(settings or {})
    exports = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items())
    lines = ["#!/bin/sh", 'cd "$(dirname "$0")" || exit 1', "umask 077", f"export {exports}"]
    lines += [f"{shlex.join(first)} || exit"] if first else []
    return "\n".join([*lines, f"exec {shlex.join(command)}", ""])


def environment(home: str | None = None) -> dict[str, str]:
    """Return the programs' environment: no telemetry, no installing, and their own Flower home.

    Without ``home``, the user's.
    """
    scripts = sysconfig.get_path("scripts")  # the folder of this interpreter's Flower programs
    variables = os.environ | SETTINGS | {"PYTHONUNBUFFERED": "1"} | ({"FLWR_HOME": home} if home else {})
    variables["PATH"] = f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"
    if root := variables.get("FLORILEGIUM_DATA"):
        variables["FLORILEGIUM_DATA"] = str(Path(root).resolve())  # programs start in another directory
    return variables


def fleet_is_grpc() -> bool:
    """Say whether SuperNodes reach the SuperLink by gRPC at its Fleet address, or else by HTTP at its port."""
    major, minor = (int(part) for part in version("flwr").split(".")[:2])
    return (major, minor) < (1, 40)


def toml(text: str) -> str:
    """Return a text as TOML: JSON without ASCII escapes, as TOML has no surrogates."""
    return json.dumps(text, ensure_ascii=False)
