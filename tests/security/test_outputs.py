"""Where a submitted run may write: below the operator's folder, whatever is asked for."""

from pathlib import Path

import pytest

from baselines.engine.run_folder import OUTPUTS, resolve_output
from baselines.errors import UserError


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv(OUTPUTS, str(folder))
    return folder


@pytest.mark.parametrize("output", ["first", "a/b", "{outputs}/first", ""])
def test_a_run_lies_below_the_operators_folder(output: str, outputs: Path) -> None:
    folder = resolve_output(output.format(outputs=outputs), 17)
    assert folder.parent == outputs or folder.parent == outputs / "a"
    assert folder.name == (Path(output).name or "17")


@pytest.mark.parametrize(
    "output",
    [
        "/etc",
        "../elsewhere",
        "a/../../elsewhere",
        "link",
        "link/x",
        ".",
        "{outputs}",
        "{outputs}/../elsewhere",
    ],
)
def test_and_nowhere_else(output: str, outputs: Path) -> None:
    with pytest.raises(UserError, match="output="):
        resolve_output(output.format(outputs=outputs), 17)


def test_without_a_word_of_the_operator_it_is_below_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OUTPUTS, raising=False)
    monkeypatch.chdir(tmp_path)
    assert resolve_output("", 17) == tmp_path / "outputs" / "17"
    with pytest.raises(UserError):
        resolve_output(str(tmp_path / "x"), 17)
