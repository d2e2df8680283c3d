"""provision: what each role of a federation needs, made from federation.yaml."""

from pathlib import Path

from baselines.errors import UserError
from baselines.runtimes import commands, credentials
from baselines.runtimes.sites import node_config

from .agreed import Federation, Site, read


def provision(file: Path) -> None:
    """Make certificates, keys and start commands; say what was made. What exists stays as it is.

    Raises
    ------
    UserError : for a file that says something else, or a key that is none
    """
    this = read(file)
    if not (this.folder / "ca" / "ca.pem").exists():
        _refuse_half(this.folder)
    made = credentials.authority(this.folder / "ca")
    made += credentials.server_certificate(this.folder / "ca", this.folder / "superlink", this.server.host)
    ca = (this.folder / "ca" / "ca.pem").read_text()
    made += _written(this.folder / "superlink" / "ca.pem", ca)
    made += _written(this.folder / "superlink" / "start", commands.script(superlink(this)), 0o755)
    for site in this.sites:
        made += _site(this, site, ca)
    made += _written(this.operator / "ca.pem", ca)
    section = this.server.link(this.name, this.operator / "ca.pem")
    made += _written(this.operator / "config.toml", section)
    for path in made:
        print(f"made: {path}")
    print(
        f"the SuperLink's machine gets {this.folder}/superlink, a site the one of its name; ca stays here"
    )
    print(f"who submits runs adds to ~/.flwr/config.toml:\n\n{section}")


def superlink(this: Federation) -> list[str]:
    """Return the command that starts the SuperLink, in its folder."""
    return this.server.superlink(commands.Tls("ca.pem", "server.pem", "server.key"))


def supernode(this: Federation, site: Site) -> list[str]:
    """Return the command that starts a site's SuperNode, in its folder."""
    config = node_config(site.name, site.data, site.privacy, site.min_noise)
    return this.server.supernode(config, site.port, "ca.pem", "key")


def _site(this: Federation, site: Site, ca: str) -> list[Path]:
    folder = this.folder / site.name
    made = [] if site.public_key else credentials.key_pair(folder / "key")
    credentials.check_public_key(this.public_key(site))
    made += _written(folder / "ca.pem", ca)
    return made + _written(folder / "start", commands.script(supernode(this, site)), 0o755)


def _written(file: Path, text: str, mode: int = 0o644) -> list[Path]:
    """Write a file that says something else or is not there; return it if so."""
    if file.exists() and file.read_text() == text:
        return []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return [file]


def _refuse_half(folder: Path) -> None:
    """Refuse to make a new authority beside a certificate that another has signed."""
    if (folder / "superlink" / "server.pem").exists():
        raise UserError(
            f"{folder}/ca has no ca.pem, but {folder}/superlink/server.pem is signed by it: restore it, or "
            "remove both and give the new ca.pem to all"
        )
