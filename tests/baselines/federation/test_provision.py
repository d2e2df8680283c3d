"""What a federation is provisioned with: certificates, keys and start commands."""

import json
import shlex
import stat
import subprocess
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from baselines.federation import register
from baselines.federation.__main__ import main
from baselines.federation.agreed import read
from baselines.federation.provision import superlink, supernode
from baselines.runtimes import commands, credentials
from baselines.site import policy as policies

pytestmark = pytest.mark.runtime
AGREED = """\
name: lakes
host: superlink.example.org
sites:
  north: {data: /data/north}
  south: {data: /data/south.csv, public_key: south.pub}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a federation.yaml whose second site has sent its public key."""
    credentials.key_pair(tmp_path / "elsewhere" / "south")
    (tmp_path / "elsewhere" / "south.pub").rename(tmp_path / "south.pub")
    (tmp_path / "federation.yaml").write_text(AGREED)
    return tmp_path / "federation.yaml"


def everything(folder: Path) -> dict[Path, tuple[bytes, int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {p: (p.read_bytes(), p.stat().st_mode, p.stat().st_mtime_ns) for p in files}


def test_each_role_gets_what_it_needs_and_no_more(file: Path) -> None:
    assert main(["provision", str(file)]) == 0
    made = {str(path.relative_to(file.parent / "lakes")) for path in everything(file.parent / "lakes")}
    assert made == {
        *("ca/ca.key", "ca/ca.pem", "operator/ca.pem", "operator/config.toml"),
        *("superlink/ca.pem", "superlink/server.key", "superlink/server.pem", "superlink/start"),
        *("north/ca.pem", "north/key", "north/key.pub", "north/start", "north/site.yaml"),
        *("south/ca.pem", "south/start", "south/site.yaml"),  # its key stays with it
    }
    for name in ("ca/ca.key", "superlink/server.key", "north/key"):
        assert stat.S_IMODE((file.parent / "lakes" / name).stat().st_mode) == 0o600
    links = tomllib.loads((file.parent / "lakes/operator/config.toml").read_text())["superlink"]
    ca = str((file.parent / "lakes/operator/ca.pem").resolve())
    assert links == {"lakes": {"address": "superlink.example.org:8000", "root-certificates": ca}}


def test_the_certificate_is_for_its_host_and_the_loopback_and_signed(file: Path) -> None:
    assert main(["provision", str(file)]) == 0
    folder = file.parent / "lakes"
    ca = x509.load_pem_x509_certificate((folder / "ca/ca.pem").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "superlink/server.pem").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    private = load_ssh_private_key((folder / "north/key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == load_ssh_public_key((folder / "north/key.pub").read_bytes())


def test_provisioning_again_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", str(file)]) == 0
    before = everything(file.parent)
    assert "made:" in capsys.readouterr().out
    assert main(["provision", str(file)]) == 0
    assert everything(file.parent) == before
    assert "made:" not in capsys.readouterr().out
    file.write_text(AGREED + "  east: {data: /data/east}\n")
    assert main(["provision", str(file)]) == 0
    assert {path: everything(file.parent)[path] for path in before if path != file} == {
        path: content for path, content in before.items() if path != file
    }
    assert (file.parent / "lakes/east/key").exists()


def test_a_key_that_was_handed_over_stays_the_sites(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new one would be registered in its place, and the old one revoked for ever."""
    assert main(["provision", str(file)]) == 0
    commands: list[list[str]] = []

    def answered(command: list[str], **_: object) -> CompletedProcess[str]:
        commands.append(command)
        answer = {"success": True, "nodes": [{"node-id": "7", "status": "online"}], "node-id": "7"}
        return CompletedProcess(command, 0, json.dumps(answer), "")

    monkeypatch.setattr(register.subprocess, "run", answered)
    assert main(["register", str(file)]) == 0
    key = file.parent / "lakes" / "north" / "key"
    key.unlink()
    before = everything(file.parent)
    capsys.readouterr()
    assert main(["provision", str(file)]) == 0
    assert f"kept: {key}.pub: its private half has been handed over\n" in capsys.readouterr().out
    assert everything(file.parent) == before
    commands.clear()
    assert main(["register", str(file)]) == 0
    assert [command[2] for command in commands] == ["list"]
    key.with_name("key.pub").unlink()  # how a site gets another one
    assert main(["provision", str(file)]) == 0
    assert key.exists()


@pytest.mark.slow
def test_a_site_whose_file_is_damaged_does_not_start(file: Path) -> None:
    assert main(["provision", str(file)]) == 0
    program = file.parent / "bin" / "flower-supernode"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    environment = commands.environment()
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    folder = file.parent / "lakes" / "north"

    def started() -> tuple[int, str]:
        done = subprocess.run(
            [str(folder / "start")], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    status, lines = started()
    assert status == 0
    assert lines.endswith("in order, reads /data/north, where nothing is yet\nstarted\n")
    own = folder / "site.yaml"
    own.write_text(own.read_text().replace("min_rows: 20", "min_rows: twenty"))
    status, lines = started()
    assert status == 2
    assert lines == "error: min_rows: site.yaml: min_rows=twenty, expected a whole number\n"


@pytest.mark.parametrize("grpc", [True, False])
def test_the_commands_of_both_flower_generations(
    file: Path, grpc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "fleet_is_grpc", lambda: grpc)
    federation = read(file)
    fleet = "--fleet-api-address 0.0.0.0:9092 " if grpc else ""
    assert shlex.join(superlink(federation)) == (
        f"flower-superlink --host 0.0.0.0 --port 8000 {fleet}--ssl-ca-certfile ca.pem "
        "--ssl-certfile server.pem --ssl-keyfile server.key --enable-supernode-auth --database superlink.db"
    )
    port = 9092 if grpc else 8000
    assert shlex.join(supernode(federation, federation.sites[0])) == (
        f"flower-supernode --superlink superlink.example.org:{port} --host 127.0.0.1 --port 9094 "
        "--root-certificates ca.pem --auth-supernode-private-key key "
        """--node-config 'site="north" site-file="site.yaml"'"""
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("name: lakes", "nom: lakes", "has nom: expected name, host"),
        ("name: lakes", "name: a b", "name='a b', expected letters"),
        ("host: superlink.example.org\n", "", "host=None, expected letters"),
        ("host:", "port: 0\nhost:", "port=0, expected a port"),
        ("host:", "port: 9092\nhost:", "port and fleet_port are both 9092: choose two"),
        (
            "{data: /data/north}",
            "{data: /d, public_key: copy.pub}",
            "sites north and south have the same key: make another for one of them",
        ),
        ("{data: /data/north}", "{}", "site north: data=None, expected the path"),
        ("{data: /data/north}", "{data: /d, revoked: 3}", "revoked=3, expected true or false"),
        ("{data: /data/north}", "{data: /d, privacy: yes}", "privacy=True, expected local or central"),
        ("{data: /data/north}", "{data: /d, min_noise: -1}", "min_noise=-1, expected a number"),
        ("{data: /data/north}", "{date: /d}", "site north has date: expected data, public_key"),
        ("north:", "ca:", "site ca is the name of another folder"),
        ("south.pub", "elsewhere/south", "is not a public key"),
        ("south.pub", "nowhere.pub", "nowhere.pub"),
        ("sites:", "sites: [", "is not YAML"),
    ],
)
def test_a_mistake_in_the_file_has_one_line(
    before: str,
    after: str,
    message: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands, "fleet_is_grpc", lambda: True)
    (file.parent / "copy.pub").write_text(f"{(file.parent / 'south.pub').read_text().strip()} a comment\n")
    file.write_text(AGREED.replace(before, after))
    assert main(["provision", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_another_host_needs_another_certificate(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", str(file)]) == 0
    file.write_text(AGREED.replace("superlink.example.org", "10.0.0.7"))
    assert main(["provision", str(file)]) == 2
    assert "is not for 10.0.0.7: remove it, and provision again" in capsys.readouterr().err
    (file.parent / "lakes/superlink/server.pem").unlink()
    assert main(["provision", str(file)]) == 0
    (file.parent / "lakes/ca/ca.pem").unlink()
    assert main(["provision", str(file)]) == 2
    assert "is signed by it: restore it" in capsys.readouterr().err


def test_register_says_where_nobody_answers(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["provision", str(file)]) == 0
    capsys.readouterr()
    for output, message in (
        (
            f"{register.NO_CONNECTION}. Please check your network connection",
            "nobody answers at superlink.example.org:8000: ",
        ),
        ("The public key is in use", "The public key is in use\n"),
    ):
        text = f"Using SuperLink: lakes (localhost:8000)\n Listing all nodes...\n\n{output}"
        answer = json.dumps({"success": False, "error-message": text})
        done = CompletedProcess([], 1, answer, "")
        monkeypatch.setattr(register.subprocess, "run", lambda *_, done=done, **__: done)
        assert main(["register", str(file)]) == 1
        assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ("lakes/operator/registered.json", "registered.json is damaged (Expecting value: line 1 column 1"),
        ("lakes/north/key.pub", "key.pub is not a public key"),
    ],
)
def test_register_names_a_damaged_file(
    damaged: str,
    message: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["provision", str(file)]) == 0
    capsys.readouterr()
    answer = CompletedProcess([], 0, json.dumps({"success": True, "nodes": [], "node-id": 7}), "")
    monkeypatch.setattr(register.subprocess, "run", lambda *_, **__: answer)
    (file.parent / damaged).write_text("")
    assert main(["register", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_what_a_site_demands_stands_in_its_own_file_which_stays_as_it_is(file: Path) -> None:
    demand = "{data: /data/north, privacy: local, min_noise: 1}"
    file.write_text(AGREED.replace("{data: /data/north}", demand))
    assert main(["provision", str(file)]) == 0
    own = file.parent / "lakes" / "north" / "site.yaml"
    policy = policies.read(own)
    assert (policy.data, policy.privacy, policy.min_noise) == ("/data/north", "local", 1.0)
    own.write_text("data: /data/elsewhere\n")
    assert main(["provision", str(file)]) == 0
    assert own.read_text() == "data: /data/elsewhere\n"


def test_the_columns_of_an_agreed_schema_stand_in_each_site_file(file: Path) -> None:
    schema = {
        "classes": ["no", "yes"],
        "shape": [2],
        "mean": [0.0, 0.0],
        "std": [1.0, 1.0],
        "dtype": "float32",
        "columns": ["age", "bmi"],
        "label": "ill",
    }
    (file.parent / "schema.yaml").write_text(json.dumps(schema))
    file.write_text(f"schema: schema.yaml\n{file.read_text()}")
    assert main(["provision", str(file)]) == 0
    policy = policies.read(file.parent / "lakes" / "north" / "site.yaml")
    assert (policy.columns, policy.label) == (("age", "bmi"), "ill")
