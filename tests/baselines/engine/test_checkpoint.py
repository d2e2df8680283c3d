"""A run that is interrupted and resumed ends in the same files as one that is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from flwr.app import Context, Message
from flwr.serverapp.strategy import FedAvg

from baselines.engine import checkpoint, resume
from baselines.engine.checkpoint import pack_value
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.flower_adapter import FlowerStrategyAdapter
from helpers.runs import App, launch, lines_in, played
from strategies.core.strategy import BaseStrategy
from strategies.shared import protocol

SMALL = "num_nodes=4 rounds=6 checkpoint_every=2"
DISTILLED = "validation_size=50 strategy.distillation.steps=5"
METHODS = {
    "scaffold": f"{SMALL} strategy=scaffold nodes_per_round=2",
    "scaffold of option 1": f"{SMALL} strategy=scaffold strategy.option=1",
    "scaffnew": f"{SMALL} strategy=scaffnew",
    "fedcm": f"{SMALL} strategy=fedcm nodes_per_round=2",
    "mime-lite": f"{SMALL} strategy=mimelite nodes_per_round=2",
    "agnostic": f"{SMALL} strategy=afl nodes_per_round=2",
    "power of choice": f"{SMALL} strategy=power_of_choice nodes_per_round=2 strategy.candidates=3",
    "clusters": f"{SMALL} strategy=ifca node_test_fraction=0.2 nodes_per_round=3",
    "prototypes": f"{SMALL} strategy=fedproto node_test_fraction=0.2 nodes_per_round=2",
    "power of choice that asks": (
        f"{SMALL} strategy=power_of_choice nodes_per_round=2 strategy.candidates=3 strategy.asks=true "
        "strategy.loss_examples=20"
    ),
    "oort": f"{SMALL} strategy=oort nodes_per_round=2",
    "buffered": f"{SMALL} strategy=fedbuff nodes_per_round=3 mask=agreement server_optimizer=adam",
    "largest moments": f"{SMALL} strategy=fedams",
    "average of iterates": f"{SMALL} strategy=fedadam strategy.average_last=3 mask=agreement",
    "momentum": f"{SMALL} strategy=fedavgm node_test_fraction=0.2",
    "erosion": f"{SMALL} strategy=weight_erosion weighting.requester=0 weighting.distance_penalty=0.02",
    "erosion for all": f"{SMALL} strategy=weight_erosion_all",
    "selective, while local": f"{SMALL} strategy=selective validation_size=50 strategy.local_rounds=5",
    "selective, in groups": f"{SMALL} strategy=selective validation_size=50 strategy.local_rounds=3",
    "ensemble distillation": f"{SMALL} strategy=feddf {DISTILLED}",
    "co-distillation": f"{SMALL} strategy=codistillation {DISTILLED} nodes_per_round=2",
    "grouped scaffold": f"{SMALL} strategy=local strategy.inner._target_=strategies.Scaffold",
    "private layers": f"{SMALL} private=fedper node_test_fraction=0.2 nodes_per_round=2",
    "head and body in turn": f"{SMALL} personal=fedrep node_test_fraction=0.2 nodes_per_round=2",
    "models besides": f"{SMALL} personal=ditto node_test_fraction=0.2 nodes_per_round=2",
    "a mixture": f"{SMALL} personal=apfl client.personal.adaptive=true node_test_fraction=0.2 nodes_per_round=2",
    "envelopes": f"{SMALL} personal=pfedme node_test_fraction=0.2 nodes_per_round=2",
    "the body alone": f"{SMALL} personal=fedbabu node_test_fraction=0.2 nodes_per_round=2",
    "private bodies": f"{SMALL} private=lg_fedavg node_test_fraction=0.2 nodes_per_round=2",
    "moon": f"{SMALL} corrections=moon nodes_per_round=2",
    "losses of their own": f"{SMALL} corrections=[fedsam,fedlc,fedntd,feddecorr] nodes_per_round=2",
    "restricted softmax": f"{SMALL} corrections=fedrs nodes_per_round=2",
    "dropout": f"{SMALL} participation.dropout=0.1 client.stragglers=0.5 client.local_epochs=2",
    "kept optimiser": f"{SMALL} client=adam client.keep_optimizer=true",
    "single precision, decayed step": f"{SMALL} strategy=fedexp client.schedule.gamma=0.9",
}


def interrupting(server_round: int) -> Callable[[App], App]:
    """Return what interrupts a ClientApp when the second node of a round is to train."""
    calls = 0

    def wrap(app: App) -> App:
        def interrupted(message: Message, context: Context) -> Message:
            nonlocal calls
            config = message.content.config_records.get("config", {})
            if message.metadata.message_type == "train" and config["server-round"] == server_round:
                calls += 1
                if calls == 2:
                    raise KeyboardInterrupt
            return app(message, context)

        return interrupted

    return wrap


def interrupted(overrides: str, folder: Path, server_round: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        played(overrides, folder, interrupting(server_round))


@pytest.mark.exhaustive
@pytest.mark.parametrize("overrides", METHODS.values(), ids=METHODS.keys())
def test_resumed_is_uninterrupted(overrides: str, tmp_path: Path) -> None:
    played(overrides, tmp_path / "whole")
    interrupted(overrides, tmp_path / "parts", 6)  # rows of round 5 are to be taken back
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")[: len(lines_in(tmp_path / "parts"))]
    played(f"{overrides} resume=true", tmp_path / "parts")
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")
    parts, whole = checkpoint.load(tmp_path / "parts"), checkpoint.load(tmp_path / "whole")
    assert parts is not None
    assert whole is not None
    assert (parts.server_round, parts.resumed, whole.resumed) == (6, (4,), ())
    assert_equal(timeless(parts.strategy), timeless(whole.strategy))
    assert_equal(parts.nodes, whole.nodes)
    assert_equal(parts.arrays, whole.arrays)


def timeless(state: object) -> object:
    """Return a strategy's state without the machine's seconds, which waiting updates carry for metrics.csv."""
    if not isinstance(state, dict):
        return state
    return {key: timeless(value) for key, value in state.items() if key != protocol.CLIENT_SECONDS}


def assert_equal(ours: object, theirs: object) -> None:
    torch.testing.assert_close(pack_value(ours), pack_value(theirs), rtol=0, atol=0)


@pytest.mark.slow
def test_the_nodes_states_are_part_of_it(tmp_path: Path) -> None:
    played(METHODS["scaffold of option 1"], tmp_path)
    saved = checkpoint.load(tmp_path)
    assert saved is not None
    assert saved.nodes is not None
    assert set(saved.nodes) == {0, 1, 2, 3}
    assert all("control" in state.array_records for state in saved.nodes.values())


@pytest.mark.slow
def test_without_a_checkpoint_it_starts_from_the_beginning(tmp_path: Path) -> None:
    overrides = "num_nodes=4 rounds=3"
    played(overrides, tmp_path / "whole")
    interrupted(overrides, tmp_path / "parts", 3)
    assert not (tmp_path / "parts" / "checkpoint").exists()
    played(f"{overrides} resume=true", tmp_path / "parts")
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")


@pytest.mark.slow
def test_a_new_start_forgets_the_old_checkpoint(tmp_path: Path) -> None:
    """Else a later ``resume=true`` would cut the new metrics where the old run stood."""
    played(SMALL, tmp_path)
    interrupted(f"{SMALL} resume=false", tmp_path, 2)
    assert checkpoint.load(tmp_path) is None


@pytest.mark.slow
def test_it_can_be_interrupted_again_and_again(tmp_path: Path) -> None:
    overrides = "num_nodes=4 rounds=6 checkpoint_every=1 strategy=scaffold"
    played(overrides, tmp_path / "whole")
    for server_round in (2, 3, 5):
        interrupted(f"{overrides} resume=true", tmp_path / "parts", server_round)
    played(f"{overrides} resume=true", tmp_path / "parts")
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")
    environment = json.loads((tmp_path / "parts" / "environment.json").read_text())
    assert environment["resumed"] == [1, 2, 4]
    assert environment["status"] == "finished"


@pytest.mark.slow
def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    interrupted(SMALL, tmp_path, 3)
    with pytest.raises(UserError, match=r"latest\.pt belongs to a run with another configuration"):
        played(f"{SMALL} client.optimizer.lr=0.1 resume=true", tmp_path)


@pytest.mark.slow
def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(UserError, match="another process is running in"),
    ):
        played(SMALL, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("checkpoint_every=-1", "checkpoint_every=-1 is out of range"),
        ("checkpoint_every=2 strategy=scaffold runtime=superlink", "use runtime=inline or runtime=ray"),
        ("checkpoint_every=2 client.keep_optimizer=true runtime=superlink", "use runtime=inline"),
    ],
)
def test_what_could_not_be_resumed_is_refused_at_once(
    overrides: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*overrides.split(), f"hydra.run.dir={tmp_path}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_strategy_without_a_state_cannot_be_resumed() -> None:
    class Stock(Experiment):
        def strategy(self) -> BaseStrategy:
            return FlowerStrategyAdapter(FedAvg(), num_nodes=2, max_failed_rounds=3)

    with pytest.raises(UserError, match="FedAvg has no state_dict to continue from"):
        resume.check_resumable(Stock("checkpoint_every=2"), gives_node_states=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scaffold", "average of iterates", "selective, in groups"])
def test_a_finished_run_goes_on_to_more_rounds(method: str, tmp_path: Path) -> None:
    overrides = METHODS[method]
    played(overrides, tmp_path / "whole")
    played(f"{overrides} rounds=4", tmp_path / "parts")
    played(f"{overrides} resume=true", tmp_path / "parts")
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")


@pytest.mark.slow
def test_only_what_is_the_same_but_for_its_rounds_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not another seed, fewer rounds, what the number of rounds decides, or what left no checkpoint."""
    arguments = ["num_nodes=3", "resume=true", f"hydra.run.dir={tmp_path}/a"]
    decayed = "client.schedule.ahead=${rounds}"
    assert launch(*arguments, decayed, "rounds=4", "checkpoint_every=3") == 0
    for other, message in {
        "client.schedule.ahead=4 seed=1 rounds=6": "another configuration (",
        "client.schedule.ahead=4 rounds=3": "has 4 rounds of this run already, and rounds=3: choose",
        f"{decayed} rounds=6": "client.schedule.ahead",
    }.items():
        assert launch(*arguments, *other.split()) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert "in a sweep hydra.sweep.dir and .subdir, of submit --output" in printed
    assert launch(*arguments, "client.schedule.ahead=4", "rounds=5") == 0
    assert json.loads((tmp_path / "a" / "environment.json").read_text())["resumed"] == [4]
    without = ["num_nodes=3", "resume=true", f"hydra.run.dir={tmp_path}/b"]
    assert launch(*without, "rounds=2") == 0
    capsys.readouterr()
    assert launch(*without, "rounds=3") == 2
    message = (
        "has 2 rounds of this run, and left no checkpoint/latest.pt, so that it cannot go on to 3: start"
    )
    assert message in capsys.readouterr().err


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["num_nodes=3", "rounds=2", f"hydra.run.dir={tmp_path}"]
    assert launch(*arguments) == 0
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    assert launch(*arguments, "resume=true") == 0
    assert capsys.readouterr().out == f"finished already: {tmp_path}\n"
    after = [path for path in tmp_path.rglob("*") if ".hydra.2" not in path.parts]  # this start's overrides
    assert {path: path.stat().st_mtime_ns for path in after} == files
    assert launch(*arguments, "resume=true", "seed=1") == 2
    assert "another configuration" in capsys.readouterr().err
