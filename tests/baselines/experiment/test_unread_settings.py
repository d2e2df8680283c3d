"""What a file of options sets and nobody reads is refused: it would change nothing, without a line."""

from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.experiment import config

UNREAD = {  # option, its file, and what is said of it
    "experiment=mine": {
        "# @package _global_\nroundz: 3\n": "there is no setting roundz, .*: did you mean rounds",
        "# @package _global_\nunheard_of: 3\n": "there is no setting unheard_of, .*: leave it out",
        "# @package _global_\nearly_stopping: {patiense: 3}\n": (
            r"there is no setting early_stopping\.patiense, .*: did you mean early_stopping\.patience"
        ),
        "rounds: 3\n": r"experiment\.rounds is not read: .* experiment/ with # @package _global_",
    },
    "corrections=mine": {
        "mine: {_target_: clients.Proximal, _partial_: true, mu: 1.0}\n": (
            r"corrections\.mine is not read: .* corrections/ with # @package client\.corrections"
        ),
    },
    "schedule=mine": {"gamma: 0.5\n": r"schedule\.gamma is not read: .* with # @package client\.schedule"},
    "private=mine": {"names: [a]\n": "private.names is not read: .* with # @package client"},
}
CASES = [(option, text, words) for option, files in UNREAD.items() for text, words in files.items()]


def composed(option: str, text: str, folder: Path) -> config.Composed:
    group, _, name = option.partition("=")
    (folder / group).mkdir()
    (folder / group / f"{name}.yaml").write_text(text)
    return config.compose_unchecked(f"hydra.searchpath=[file://{folder}] {option}")


@pytest.mark.parametrize(("option", "text", "words"), CASES)
def test_what_nobody_reads_is_refused(option: str, text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words) as refused:
        composed(option, text, tmp_path)
    assert "\n" not in str(refused.value)


def test_a_setting_that_another_one_names_is_read(tmp_path: Path) -> None:
    text = "# @package _global_\nmy_rate: 0.5\nclient: {optimizer: {lr: '${my_rate}'}}\nlogger: {}\n"
    assert composed("experiment=mine", text, tmp_path).cfg.client.optimizer.lr == 0.5


def test_the_groups_that_stand_in_another_part_are_those_of_the_project() -> None:
    cfg, folder = config.compose_unchecked("").cfg, config.CONF
    groups = {path.name for path in folder.iterdir() if path.is_dir()} - {"hydra"}
    assert groups - {"logger", "clock"} - {*cfg} == {*config.PACKAGES}
    for group, package in config.PACKAGES.items():
        firsts = {path.read_text().partition("\n")[0] for path in (folder / group).rglob("*.yaml")}
        assert f"# @package {package}" in firsts
