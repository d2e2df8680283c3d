"""What stays at its node: which it is, two rounds by hand, and that the server's never moves."""

from functools import partial
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.apps import client_app_of
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from clients.private import check_patterns, select_private
from helpers.runs import curve, launch, metrics_in, played
from strategies.shared.arrays import view_values

SMALL = "dataset=digits num_nodes=3 rounds=2 node_test_fraction=0.2"


def normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 4), nn.GroupNorm(2, 4))


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["*Norm*"], {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"}),
        (["Linear"], {"2.weight", "2.bias"}),
        (["last"], {"3.weight", "3.bias"}),
        (["0.*", "1.running_*"], {"0.weight", "0.bias", "1.running_mean", "1.running_var"}),
        ([], set()),
    ],
)
def test_patterns_are_of_names_and_of_classes(patterns: list[str], chosen: set[str]) -> None:
    more = {"3.weight", "3.bias"} if patterns == ["*Norm*"] else set()
    assert select_private(normed(), patterns).keys() == chosen | more


@pytest.mark.parametrize(
    ("patterns", "message"), [(["4.*"], "is no parameter"), (["*"], "leaves no parameter to share")]
)
def test_patterns_that_make_no_sense_are_refused(patterns: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_patterns(normed(), patterns)


def test_two_rounds_and_an_evaluation_by_hand() -> None:
    """y = a x + b at x = 1, target 1, b private, learning rate 0.1: a and b move by 0.1 (1 - a - b).

    From (0, 0) to (0.1, 0.1); the server sends (0.2, 0), so that it starts at (0.2, 0.1) and comes to
    (0.27, 0.17). Judged at the server's a = 0.3, with b = 0.17, the loss is 0.53 squared.
    """
    one = Examples(torch.ones(1, 1), torch.ones(1, 1), torch.arange(1))
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), private=["bias"])
    node = Node(nn.Linear(1, 1), training, LeastSquares(1), one, one)
    grid = InlineGrid(client_app(lambda *_: node), 1)
    (only,) = grid.get_node_ids()

    def answered(a: float, server_round: int, kind: str = "train") -> RecordDict:
        sent = ArrayRecord({"weight": torch.tensor([[a]]), "bias": torch.zeros(1)})  # type: ignore[arg-type]
        config = ConfigRecord({"server-round": server_round})
        message = Message(RecordDict({"arrays": sent, "config": config}), only, kind)
        (reply,) = grid.send_and_receive([message])
        return reply.content

    for server_round, sent, weight, bias in ((1, 0.0, 0.1, 0.1), (2, 0.2, 0.27, 0.17)):
        arrays = answered(sent, server_round).array_records["arrays"]
        assert view_values(arrays["weight"]).item() == pytest.approx(weight)
        assert view_values(arrays["bias"]).item() == 0
        assert view_values(
            grid.context(only).state.array_records["private"]["bias"]
        ).item() == pytest.approx(bias)
    judged = answered(0.3, 2, "evaluate").metric_records["metrics"]
    assert judged["loss"] == pytest.approx(0.53**2)


@pytest.mark.parametrize("strategy", ["fedavg", "fedadam", "fedexp mask=agreement", "fedprox"])
def test_the_servers_private_layer_never_moves(strategy: str) -> None:
    overrides = f"{SMALL} private=fedper strategy={strategy}"
    setup = experiment.load(overrides)
    ours, grid, arrays = setup.strategy(), InlineGrid(client_app_of(overrides), 3), setup.initial_arrays()
    first = arrays
    for t in (1, 2):
        messages = ours.configure_train(t, arrays, setup.train_config(), grid)
        new, _ = ours.aggregate_train(t, grid.send_and_receive(messages))
        assert new is not None
        arrays = new
    same = {name: (view_values(arrays[name]) == view_values(first[name])).all() for name in arrays}
    assert same == {"hidden.weight": False, "hidden.bias": False, "out.weight": True, "out.bias": True}


def test_without_a_pattern_it_is_the_strategy(tmp_path: Path) -> None:
    plain = played(SMALL, tmp_path / "plain")
    assert plain.equals(played(f"{SMALL} client.private=[]", tmp_path / "none"))
    assert not plain.equals(played(f"{SMALL} private=fedper", tmp_path / "some"))


def test_nodes_of_two_classes_do_better_with_a_last_layer_of_their_own(tmp_path: Path) -> None:
    skewed = "dataset=digits partitioner=pathological rounds=5 node_test_fraction=0.2 client.local_epochs=3"
    shared = curve(played(skewed, tmp_path / "shared"), "node-test", "accuracy")[-1]
    own = curve(played(f"{skewed} private=fedper", tmp_path / "own"), "node-test", "accuracy")[-1]
    assert own > shared + 0.1


def test_batched_nodes_keep_their_own_too(tmp_path: Path) -> None:
    losses = []
    for batched in ("false", "true"):
        words = f"{SMALL} private=fedper runtime.batch_clients={batched} hydra.run.dir={tmp_path / batched}"
        assert launch(*words.split()) == 0
        losses.append(curve(metrics_in(tmp_path / batched), "node-test", "loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("dataset=digits private=fedper", "set node_test_fraction above 0"),
        (
            f"{SMALL} private=fedper privacy=central privacy.noise_seed=1 weighting=uniform",
            "privacy's noise would move what is to stay at its node",
        ),
        (
            f"{SMALL} private=fedper strategy=fedmeta validation_size=50",
            "FedMeta's step on the server would move what is to stay",
        ),
        (
            f"{SMALL} private=fedper strategy=local strategy.inner._target_=strategies.FedMeta "
            "validation_size=50",
            "FedMeta's step on the server would move what is to stay",
        ),
        (
            f"{SMALL} private=fedper strategy=scaffold",
            "client.private=['last'] with a strategy that asks nodes for",
        ),
        (
            f"{SMALL} private=fedper strategy=feddyn",
            "client.private=['last'] with a strategy that asks nodes for Dynamic, which pulls them",
        ),
        (f"{SMALL} private=fedper model=softmax", "leaves no parameter to share"),
    ],
)
def test_what_cannot_go_together_is_refused(
    refused: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*refused.split(), f"hydra.run.dir={tmp_path}") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_clip_without_noise_moves_nothing(tmp_path: Path) -> None:
    clipped = "privacy=central privacy.clip=3 privacy.noise_multiplier=0 weighting=uniform"
    played(f"{SMALL} private=fedper {clipped}", tmp_path)
