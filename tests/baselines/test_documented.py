"""Every command and every piece of Python in the documentation is one that works."""

import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from baselines import compare, new
from baselines.experiment.experiment import Experiment
from baselines.experiment.overrides import ROOT, with_config_dir
from baselines.federation import __main__ as federation
from baselines.federation import agreed
from baselines.reproduce import __main__ as reproduce
from baselines.reproduce import paper_tables
from helpers.federation import Federation, answer, record, sent_model

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / "baselines").glob("papers/*/README.md"),
]
OPEN = re.compile(r"[<…]|\.\.\.(?!/)")  # what a reader fills in
SWEPT = re.compile(r"^([\w@./]+)=([^\[{'\"(]*?),.*$")


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, command) of all console blocks, without comments and prompts."""
    for page in PAGES:
        for block in re.findall(
            r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("$ ") and "-m baselines." in line and not OPEN.search(line):
                    yield page.relative_to(ROOT).as_posix(), line.removeprefix("$ ")


COMMANDS = sorted(set(commands()))


def arguments_of(command: str) -> tuple[str, list[str]]:
    """Return the name of a command of ours, and its arguments."""
    words = shlex.split(command, comments=True)
    place = next(place for place, word in enumerate(words) if word.startswith("baselines."))
    return words[place].removeprefix("baselines."), words[place + 1 :]


def composed(arguments: list[str]) -> Experiment:
    """Return the experiment of a run, or the first of a sweep."""
    folder = None
    if "--config-dir" in arguments:
        place = arguments.index("--config-dir")
        folder = Path(arguments[place + 1])
        arguments = arguments[:place] + arguments[place + 2 :]
    plain = [
        SWEPT.sub(r"\1=\2", word) for word in arguments if word != "-m" and not word.startswith("hydra")
    ]
    assert not [word for word in plain if word.startswith("-")]
    return Experiment(shlex.join(with_config_dir(folder, plain)))


def parsed(name: str, arguments: list[str]) -> Namespace:
    """Return what a command that is no run understands; it ends with ``SystemExit`` where it does not."""
    if name == "compare":
        return compare._parser().parse_args(arguments)
    if name == "new":
        return new._parser().parse_args(arguments)
    if name == "federation":
        return federation._parser().parse_args(arguments)
    return reproduce._parser().parse_intermixed_args(arguments)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_is_understood(page: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, arguments = arguments_of(command)
    if name == "bench":
        pytest.skip("tests/baselines/bench")
    if name in ("run", "inspect"):
        given = arguments[:]
        if "--figure" in given:
            del given[given.index("--figure") : given.index("--figure") + 2]
        composed([word for word in given if "schema.yaml" not in word]).settings  # noqa: B018
        return
    options = parsed(name, arguments)
    if name == "reproduce" and options.table:
        assert options.table in paper_tables.tables(options.paper)


def test_they_are_found() -> None:
    assert len(COMMANDS) > 40
    assert {arguments_of(command)[0] for _, command in COMMANDS} >= {
        "run",
        "compare",
        "inspect",
        "reproduce",
    }


def test_the_federation_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.M | re.S)
    (tmp_path / "federation.yaml").write_text(block)
    schema = {"classes": ["no", "yes"], "shape": [1], "mean": [0.0], "std": [1.0], "dtype": "float32"}
    (tmp_path / "schema.yaml").write_text(json.dumps(schema))
    assert [site.name for site in agreed.read(tmp_path / "federation.yaml").sites] == ["north", "south"]


@pytest.mark.slow
def test_the_python_on_the_front_page_runs() -> None:
    def moving(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({name: values * 0.9 for name, values in sent_model(content).items()})

    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGES[0].read_text(), flags=re.M | re.S)
    names = {"grid": Federation(moving, 12), "initial_arrays": record({"w": np.ones(3, np.float32)})}
    exec(block, names)
    result = names["result"]
    assert len(result.train_metrics_clientapp) == 100  # type: ignore[attr-defined]
    assert np.abs(result.arrays["w"].numpy()).max() < 1e-3  # type: ignore[attr-defined]
