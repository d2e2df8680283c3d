"""Local privacy: what leaves a node, and what a node demands before it works."""

from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, LocalTraining, Node, client_app
from clients.privacy import LocalNoise, PrivacyRefusal, check_demand, refuse_evaluation
from strategies import LocalPrivacy
from strategies.shared.arrays import view_values

pytestmark = pytest.mark.runtime
NODES, INPUTS = 3, 40


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(INPUTS, 2)


def grid(**demands: object) -> InlineGrid:
    net, random = model(), torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(30, INPUTS, generator=random), torch.randint(2, (30,), generator=random)
    training = LocalTraining(optimizer=partial(SGD, lr=0.5), batch_size=4)

    def node_of(message: Message, context: Context) -> Node:
        rows = torch.arange(10) + 10 * int(context.node_config["partition-id"])
        train, test = (Examples(inputs, targets, part) for part in (rows, rows[:2]))
        return Node(net, training, Classification(), train, test)

    built = InlineGrid(client_app(node_of), NODES)
    for node in built.get_node_ids():
        built.context(node).node_config.update(demands)  # type: ignore[arg-type]
    return built


def ask(grid: InlineGrid, kind: str = "train", server_round: int = 1, **settings: object) -> list[Message]:
    config = ConfigRecord({"server-round": server_round, **settings})  # type: ignore[dict-item]
    content = RecordDict({"arrays": ArrayRecord(model().state_dict()), "config": config})
    return grid.send_and_receive([Message(content, node, kind) for node in grid.get_node_ids()])


def update(reply: Message) -> np.ndarray:
    start = model().state_dict()
    moved = [view_values(reply.content["arrays"][name]) - start[name].numpy() for name in start]
    return np.concatenate([part.ravel() for part in moved]).astype(float)


def asks(clip: float, noise: float, seed: int | None = 0) -> dict[str, object]:
    return {**LocalPrivacy(clip, noise, noise_seed=seed).train_config()}


def test_an_update_is_cut_to_the_clip_and_keeps_its_direction() -> None:
    whole = [update(reply) for reply in ask(grid())]
    cut = [update(reply) for reply in ask(grid(), **asks(0.1, 0))]
    for long, short in zip(whole, cut, strict=True):
        assert np.linalg.norm(long) > 0.2
        assert short == pytest.approx(long * 0.1 / np.linalg.norm(long), abs=1e-6)


def test_a_short_update_is_left_alone() -> None:
    whole = [update(reply) for reply in ask(grid())]
    assert max(map(np.linalg.norm, whole)) < 90
    for long, same in zip(whole, ask(grid(), **asks(90, 0)), strict=True):
        assert (update(same) == long).all()


def test_the_noise_has_the_stated_deviation_and_is_each_nodes_own() -> None:
    """z C = 0.2; 82 numbers of three nodes in 40 rounds tell it to 1 %."""
    nodes, draws = grid(), []
    for server_round in range(1, 41):
        noised = ask(nodes, server_round=server_round, **asks(0.1, 2))
        plain = ask(nodes, server_round=server_round, **asks(0.1, 0))
        draws.append([update(one) - update(other) for one, other in zip(noised, plain, strict=True)])
    noise = np.array(draws)
    assert noise.std() == pytest.approx(0.2, rel=0.05)
    assert len(np.unique(noise.round(7))) > 0.99 * noise.size


def test_noise_without_a_seed_is_another_each_time() -> None:
    def drawn(seed: int | None) -> list[bytes]:
        return [reply.content["arrays"]["weight"].data for reply in ask(grid(), **asks(1, 1, seed))]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert drawn(None) != drawn(None)


def test_nothing_else_leaves_the_node() -> None:
    config = {**asks(1, 1), "gradient-variance": True}
    for k, reply in enumerate(ask(grid(), **config)):
        assert set(reply.content) == {"metrics", "arrays", "config"}
        assert dict(reply.content["config"]) == {"privacy": "local"}  # whatever the data
        assert dict(reply.content["metrics"]) == {
            "num-examples": 1,
            "partition-id": k,
            "learning-rate": 0.5,
        }


def test_a_model_with_running_statistics_is_not_sent() -> None:
    net = nn.BatchNorm1d(4)
    noise = LocalNoise(1.0, 1.0, torch.Generator())
    with pytest.raises(ValueError, match="buffer 'running_mean' would leave this node without noise"):
        noise.privatize_(net, ArrayRecord(net.state_dict()))


LOCAL, CENTRAL = {"privacy": "local", "privacy-noise": 1.0}, {"privacy": "central", "privacy-noise": 1.0}


@pytest.mark.parametrize(
    ("own", "config"),
    [
        ({}, {}),
        ({}, CENTRAL),
        ({"privacy": "local"}, LOCAL),
        ({"privacy": "central"}, LOCAL),
        ({"privacy": "central", "min-noise": 1.0}, CENTRAL),
        ({"min-noise": 0.5}, CENTRAL),
        ({"privacy": "local", "min-noise": 1}, LOCAL),
    ],
)
def test_enough_is_enough(own: dict[str, object], config: dict[str, object]) -> None:
    check_demand(own, config)


@pytest.mark.parametrize(
    ("own", "config", "word"),
    [
        ({"privacy": "local"}, {}, "demands privacy=local .* the experiment has privacy=none with 0.0"),
        ({"privacy": "local"}, CENTRAL, "the experiment has privacy=central with 1.0"),
        ({"privacy": "central"}, {**CENTRAL, "privacy-noise": 0.0}, "above 0; the experiment"),
        ({"min-noise": 1.5}, LOCAL, "noise_multiplier 1.5 or more"),
        ({"min-noise": 0}, {}, "privacy=none"),
        ({"privacy": "local"}, {**LOCAL, "privacy-seed": 0}, "the server knows its noise"),
        ({"privacy": "secret"}, LOCAL, "privacy='secret': expected 'local' or 'central'"),
        ({"min-noise": "much"}, LOCAL, "min-noise='much': expected a number"),
        ({"min-noise": -1}, LOCAL, "min-noise=-1: expected a number"),
        ({"min-noise": float("nan")}, LOCAL, "min-noise=nan: expected a number"),
        ({"min-noise": 1.0}, {**CENTRAL, "privacy-noise": float("nan")}, "the experiment has"),
    ],
)
def test_less_is_refused(own: dict[str, object], config: dict[str, object], word: str) -> None:
    with pytest.raises(PrivacyRefusal, match=word):
        check_demand(own, config)


def test_a_node_that_demands_does_not_train_for_less() -> None:
    assert all(
        reply.has_error() for reply in ask(grid(privacy="local", **{"min-noise": 2.0}), **asks(1, 1))
    )
    least = grid(privacy="local", **{"min-noise": 1.0})
    assert not any(reply.has_error() for reply in ask(least, **asks(1, 1, None)))


def test_a_node_that_demands_local_privacy_evaluates_for_nobody() -> None:
    assert not any(reply.has_error() for reply in ask(grid(privacy="central"), "evaluate"))
    assert all(reply.has_error() for reply in ask(grid(privacy="local"), "evaluate"))
    with pytest.raises(PrivacyRefusal, match="does not evaluate"):
        refuse_evaluation({"privacy": "local"})
