"""register: admit the sites of federation.yaml, and exclude those that are revoked."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from baselines.engine.environment import write_atomically
from baselines.errors import RunFailed, UserError
from baselines.runtimes import commands, credentials

from .agreed import Federation, Site, read

NO_CONNECTION = "Connection to the SuperLink is unavailable"  # Flower's words
PROGRESS_LINE = re.compile(r"^Using SuperLink: \S+ \(\S+\) (\w[\w ]*\.\.\. )?")  # progress before an error
GONE_STATUSES = ("unregistered", "deleted", None)


def register(file: Path) -> None:
    """Register the sites of federation.yaml at the SuperLink, and unregister revoked ones.

    It can be repeated: ``operator/registered.json`` maps sites to Flower's nodes. It prints a line per
    site.

    Raises
    ------
    UserError : before provisioning
    RunFailed : when the SuperLink does not answer, or refuses a site
    """
    federation = read(file)
    if not (federation.operator / "config.toml").exists():
        raise UserError(
            f"{federation.operator} has no config.toml: python -m baselines.federation provision {file}"
        )
    statuses = {
        node["node-id"]: node["status"]
        for node in _flwr(federation, commands.list_command(federation.name))["nodes"]
    }
    record = federation.operator / "registered.json"
    known = _read(record)
    refused = []
    for site in federation.sites:
        try:
            outcome = _done(federation, site, known, statuses)
        except RunFailed as error:
            refused.append(site.name)
            outcome = f"refused: {error} (a key that was revoked stays so: let the site make another)"
        write_atomically(record, json.dumps(known, indent=2) + "\n")  # after each, as the next may fail
        print(f"{site.name}: {outcome}")
    for name in known.keys() - {site.name for site in federation.sites}:
        print(f"{name}: not in {file.name} any more; to shut it out, name it there with revoked: true")
    if refused:
        raise RunFailed(f"the SuperLink refused {', '.join(refused)}")


def _read(record: Path) -> dict[str, dict[str, str]]:
    """Return the recorded node and key of each site."""
    try:
        known: dict[str, dict[str, str]] = json.loads(record.read_text()) if record.exists() else {}
    except ValueError as error:
        named = "flwr supernode list says which nodes there are"
        raise UserError(f"{record} is damaged ({error}): take it from a copy; {named}") from error
    return known


def _done(
    federation: Federation, site: Site, known: dict[str, dict[str, str]], statuses: dict[str, str]
) -> str:
    """Register or unregister one site; return what was done. ``known`` has each site's node id and key."""
    credentials.check_public_key(federation.public_key(site))
    key = federation.public_key(site).read_text().split()[1]
    before = known.get(site.name)
    status = statuses.get(before["node_id"]) if before else None
    is_registered = before is not None and status not in GONE_STATUSES
    if before is not None and is_registered and not site.revoked and before["key"] == key:
        return f"registered as {before['node_id']}, {status}"
    if before is not None and is_registered:
        _flwr(federation, commands.unregister(before["node_id"], federation.name))
    if site.revoked:
        return (
            f"revoked, it was {before['node_id']}"
            if before and is_registered
            else "revoked, not registered"
        )
    answer = _flwr(
        federation, commands.register(str(federation.public_key(site)), site.name, federation.name)
    )
    known[site.name] = {"node_id": str(answer["node-id"]), "key": key}
    changed = (
        f"; its earlier key is revoked, which was {before['node_id']}" if before and is_registered else ""
    )
    return f"registered now as {answer['node-id']}{changed}"


def _flwr(federation: Federation, command: list[str]) -> dict[str, Any]:
    """Run a command of Flower; return its answer.

    Raises
    ------
    RunFailed : if it did not succeed, in one line
    """
    done = subprocess.run(
        command,
        env=commands.environment(str(federation.operator)),
        cwd=federation.operator,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {"error-message": f"{done.stdout} {done.stderr}"}
    if not answer.get("success"):
        message = " ".join(str(answer.get("error-message", answer)).split())
        if NO_CONNECTION in message:
            raise RunFailed(
                f"nobody answers at {federation.server.host}:{federation.server.port}: start the SuperLink "
                "(superlink/start), or see whether a firewall is between"
            )
        raise RunFailed(PROGRESS_LINE.sub("", message))
    return answer
