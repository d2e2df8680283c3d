"""provision: write the files of each role of a federation."""

import json
from pathlib import Path

from baselines.engine.run_folder import OUTPUTS
from baselines.errors import UserError
from baselines.runtimes import commands, credentials
from baselines.runtimes.sites import site_config

from .agreed import Federation, Site, read

SITE_FILE = "site.yaml"
SITE_CHECK = ["python", "-m", "baselines.federation", "check", "--site-file", SITE_FILE]
SITE_TEXT = """\
# What an experiment may do at this site. It is yours: nothing that is submitted changes it, it is read anew
# for each message, and provisioning again leaves it alone. docs/deployment.md explains each key.
data: {data} # the only data that are read, and of a table no more than these:
columns: {columns} # null: no table is read
label: {label}
min_rows: 20 # with fewer rows this site takes no part

strategies: ["*"] # options that may be asked for, as patterns: [fedavg, fedprox, "fed*"]
experiments: ["*"] # the same; null is an experiment that no file of conf/experiment states
targets: [] # further classes that may be named, by full name, e.g. mylab.models.Network

privacy: {privacy} # local or central: what an experiment has to promise; null: nothing
min_noise: {min_noise} # its least noise multiplier
max_epsilon: null # the most privacy loss, of all runs together; null: not counted
delta: 1.0e-5

max_rounds: 1000 # of one run
max_runs_per_day: 24
evaluate: true # whether models are tested on rows that are held out

state: state # the folder of the audit log, the budgets and the prepared data
"""


def provision(file: Path) -> None:
    """Make certificates, keys and start commands; print what was made; keep existing keys.

    Raises
    ------
    UserError : for a file with other content, or an invalid key
    """
    federation = read(file)
    if not (federation.folder / "ca" / "ca.pem").exists():
        _refuse_half(federation.folder)
    made = credentials.authority(federation.folder / "ca")
    made += credentials.server_certificate(
        federation.folder / "ca", federation.folder / "superlink", federation.server.host
    )
    ca = (federation.folder / "ca" / "ca.pem").read_text()
    made += _written(federation.folder / "superlink" / "ca.pem", ca)
    made += _written(
        federation.folder / "superlink" / "start",
        commands.script(superlink(federation), {OUTPUTS: federation.outputs}),
        0o755,
    )
    for site in federation.sites:
        made += _site(federation, site, ca)
    made += _written(federation.operator / "ca.pem", ca)
    section = federation.server.link(federation.name, federation.operator / "ca.pem")
    made += _written(federation.operator / "config.toml", section)
    for path in made:
        print(f"made: {path}")
    for site in federation.sites:
        if site.public_key is None and not (federation.folder / site.name / "key").exists():
            print(f"kept: {federation.public_key(site)}: its private half has been handed over")
    print(
        f"the SuperLink's machine gets {federation.folder}/superlink, a site the one of its name; ca stays here"
    )
    print(f"who submits runs adds to ~/.flwr/config.toml:\n\n{section}")


def superlink(federation: Federation) -> list[str]:
    """Return the command that starts the SuperLink, in its folder."""
    return federation.server.superlink(commands.Tls("ca.pem", "server.pem", "server.key"))


def supernode(federation: Federation, site: Site) -> list[str]:
    """Return the command that starts a site's SuperNode, in its folder."""
    config = site_config(site.name, SITE_FILE)
    return federation.server.supernode(config, site.port, "ca.pem", "key")


def site_file(federation: Federation, site: Site) -> str:
    """Return the text of a new site's file, for its owner to review."""
    schema = federation.schema
    is_table = schema is not None and schema.columns is not None
    values = {
        "data": site.data,
        "columns": list(schema.columns) if is_table and schema and schema.columns else None,
        "label": schema.label if is_table and schema else None,
        "privacy": site.privacy,
        "min_noise": site.min_noise,
    }
    return SITE_TEXT.format(**{key: json.dumps(value, ensure_ascii=False) for key, value in values.items()})


def _site(federation: Federation, site: Site, ca: str) -> list[Path]:
    folder = federation.folder / site.name
    made = [] if site.public_key else credentials.key_pair(folder / "key")
    credentials.check_public_key(federation.public_key(site))
    made += _written(folder / "ca.pem", ca)
    if not (folder / SITE_FILE).exists():  # afterwards it belongs to the site
        made += _written(folder / SITE_FILE, site_file(federation, site), 0o600)
    start = commands.script(supernode(federation, site), first=SITE_CHECK)
    return made + _written(folder / "start", start, 0o755)


def _written(file: Path, text: str, mode: int = 0o644) -> list[Path]:
    """Write a file if its content differs or it is missing; return the written files."""
    if file.exists() and file.read_text() == text:
        return []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return [file]


def _refuse_half(folder: Path) -> None:
    """Refuse to make a new authority if a certificate signed by another one exists."""
    if (folder / "superlink" / "server.pem").exists():
        raise UserError(
            f"{folder}/ca has no ca.pem, but {folder}/superlink/server.pem is signed by it: restore it, or "
            "remove both and give the new ca.pem to all"
        )
