"""deploy/: containers and services run what ``provision`` makes, on the ports that the builder says."""

import re
from pathlib import Path
from shutil import copy

import yaml

from baselines.federation.__main__ import main
from baselines.federation.agreed import read
from helpers.checkout import ROOT

DEPLOY = ROOT / "deploy"


def test_compose_runs_what_was_provisioned(tmp_path: Path) -> None:
    copy(DEPLOY / "federation.yaml", tmp_path)
    assert main(["provision", str(tmp_path / "federation.yaml")]) == 0
    federation = read(tmp_path / "federation.yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert list(services) == ["superlink", *(site.name for site in federation.sites)]
    assert federation.server.host in services
    for name, service in services.items():
        role, *data = (volume.split(":") for volume in service["volumes"])
        assert role == [f"./provisioned/{name}", "/federation"]
        assert (tmp_path / role[0] / "start").stat().st_mode & 0o111
        expected = [site.data for site in federation.sites if site.name == name]
        assert [(target, mode) for _, target, mode in data] == [(path, "ro") for path in expected]
        assert service["build"]["target"] == ("superlink" if name == "superlink" else "supernode")
        assert "command" not in service  # the image's: the start script
    port = federation.server.port
    assert services["superlink"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_images_run_the_start_script_as_a_user_and_look_after_its_port() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    program, superlink, supernode = re.split(r"(?m)^FROM .*$", text)[-3:]
    assert "USER 1000" in program  # a number, which every host can tell from root
    assert 'CMD ["/federation/start"]' in program
    federation = read(DEPLOY / "federation.yaml")
    for part, port in ((superlink, federation.server.port), (supernode, federation.sites[0].port)):
        assert "USER" not in part
        assert f"('127.0.0.1', {port})" in part
    assert "/src[privacy]" in text  # privacy=central needs it at the SuperLink
    for copied in re.findall(r"(?m)^COPY (?!--)(.*) \S+$", text):
        assert all((ROOT / name).exists() for name in copied.split())


def test_the_service_runs_the_start_script_as_a_user() -> None:
    lines = (DEPLOY / "florilegium@.service").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    environment = {line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")}
    assert "FLORILEGIUM_DATA=/var/lib/florilegium/%i/prepared" in environment  # all else is read-only
    assert settings["User"] == "florilegium"
    assert settings["ExecStart"] == "/var/lib/florilegium/%i/start"
    assert settings["ReadWritePaths"] == "/var/lib/florilegium/%i"  # the database is beside the script
