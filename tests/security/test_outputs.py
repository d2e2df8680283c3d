"""Where a submitted run may write: below the operator's folder, whatever is asked for."""

from pathlib import Path

import pytest
from flwr.serverapp import Grid

from baselines import apps
from baselines.engine.run_folder import OUTPUTS, resolve_output
from baselines.errors import UserError
from strategies.shared.flower_private import server_context


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


class Nobody(Grid):
    """Flower's grid of a SuperLink, which nothing is asked of here."""

    run = set_run = create_message = get_node_ids = None  # type: ignore[assignment]
    push_messages = pull_messages = send_and_receive = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("first", "first holds a run: "),
        ("file/run", "cannot write into file/run (Not a directory)"),
        ("/etc", "output=/etc does not lie below"),
    ],
)
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_submitter_is_told_no_path_of_the_server(
    output: str, message: str, is_whole: bool, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outputs / "first").mkdir()
    (outputs / "first" / "metrics.csv").write_text(
        "round,split,model,metric,value\n1,train,global,loss,1\n"
    )
    (outputs / "file").touch()
    monkeypatch.chdir(outputs.parent)
    requested = f"{outputs}/{output}" if is_whole and output[0] != "/" else output
    with pytest.raises(UserError) as error:
        apps.server_app(Nobody(), server_context({"overrides": "rounds=1", "output": requested}))
    assert str(error.value).startswith(message)
    assert str(outputs) not in str(error.value)
    assert Path.cwd() == outputs.parent


def test_an_operators_folder_that_cannot_be_made_is_not_named(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outputs / "file").touch()
    monkeypatch.setenv(OUTPUTS, str(outputs / "file" / "runs"))
    with pytest.raises(UserError, match=r"keeps runs cannot be made \(Not a directory\): tell") as error:
        apps.server_app(Nobody(), server_context({"overrides": "rounds=1", "output": ""}))
    assert str(outputs) not in str(error.value)
