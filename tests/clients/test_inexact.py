"""gamma-inexactness: by hand, its reduction, and what else counts the steps."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.apps import client_app_of, get_batched_trainer
from baselines.experiment import experiment
from baselines.experiment.messages import warn_once
from baselines.experiment.preflight import check
from baselines.grids.inline import InlineGrid
from clients import (
    Classification,
    Correction,
    EffectiveSteps,
    Examples,
    Inexact,
    LeastSquares,
    LocalTraining,
    Proximal,
    RoundStart,
    Task,
)
from clients.methods.scaffold import ControlVariate
from helpers.plain_loop import SEED, assert_equal, examples, perceptron, seeded
from helpers.runs import curve, played

POINT = Examples(torch.ones(1, 1), torch.ones(1, 1), torch.arange(1))  # F(w) = (w - 1)^2 / 2


def start_of(
    model: nn.Module, training: LocalTraining, data: Examples, task: Task, **settings: float
) -> RoundStart:
    content = RecordDict({"config": ConfigRecord({"server-round": 1, **settings})})
    size = len(data)
    steps = training.steps(size)
    return RoundStart(
        model, data, task, training.optimizer, steps, training.batch_size, content, RecordDict(), 0
    )


def line() -> nn.Module:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def walked(
    rate: float, make: Sequence[type[Correction]] = (), epochs: int = 10, **settings: float
) -> tuple[float, dict[str, float]]:
    """Train the point's model from 0; return where it ends and the metrics."""
    model, config = line(), {"proximal-mu": settings.pop("mu")} if "mu" in settings else {}
    training = LocalTraining(optimizer=partial(SGD, lr=rate), local_epochs=epochs)
    start = start_of(model, training, POINT, LeastSquares(1), **config)
    corrections = [Proximal.begin(start)] if config else []
    corrections += [kind.begin(start) for kind in make]
    corrections += [Inexact(start, **settings)]  # type: ignore[arg-type]
    metrics = training(model, POINT, LeastSquares(1), server_round=1, seed=0, corrections=corrections)
    for correction in corrections:
        correction.on_round_end([model.weight], metrics)  # type: ignore[list-item]
    return model.weight.item(), metrics


def test_it_stops_by_hand() -> None:
    """At the rate 0.5 the gradient w - 1 is 1, 1/2, 1/4: two steps come to 0.3 of it."""
    w, metrics = walked(0.5, gamma=0.3)
    assert w == 0.75
    assert metrics["local-steps"] == 2
    assert metrics["inexactness"] == 0.25


def test_just_as_much_is_enough() -> None:
    assert walked(0.5, gamma=0.25)[1]["local-steps"] == 2


def test_with_the_proximal_term_by_hand() -> None:
    """h' = (w - 1) + w at mu = 1: w is 1/4, 3/8, 7/16 at the rate 1/4, and h' -1/2, -1/4, -1/8."""
    w, metrics = walked(0.25, gamma=0.125, mu=1.0)
    assert w == 7 / 16
    assert metrics["local-steps"] == 3
    assert metrics["inexactness"] == 0.125


def test_mu_may_be_its_own() -> None:
    """Without the term in its steps w is 1/2 after one, where 2 w - 1 = 0."""
    model = line()
    start = start_of(model, LocalTraining(optimizer=partial(SGD, lr=0.5)), POINT, LeastSquares(1))
    correction = Inexact(start, mu=1.0)
    with torch.no_grad():
        model.weight.fill_(0.5)
    correction.should_stop([model.weight])  # type: ignore[list-item]
    assert correction.reached_gamma == 0


def test_it_looks_every_so_many_steps_and_in_the_end() -> None:
    """After 3 steps it is 1/8, below 0.3; that 2 were enough, nobody has seen. 5 of 5 are 1/32."""
    w, metrics = walked(0.5, gamma=0.3, check_steps=3)
    assert (w, metrics["local-steps"]) == (0.875, 3)
    w, metrics = walked(0.5, epochs=5, gamma=0.01, check_steps=3)
    assert (metrics["local-steps"], metrics["inexactness"]) == (5, 1 / 32)


def test_gamma_0_takes_all_steps_and_reports() -> None:
    w, metrics = walked(0.5, epochs=4, gamma=0.0)
    assert (w, metrics["local-steps"], metrics["inexactness"]) == (0.9375, 4, 0.0625)
    assert walked(1.0, epochs=4, gamma=0.0)[1]["local-steps"] == 4  # though one reaches the optimum


def test_where_the_start_is_the_solution() -> None:
    model = line()
    start = start_of(model, LocalTraining(optimizer=partial(SGD, lr=0.5)), POINT, LeastSquares(1))
    with torch.no_grad():
        model.weight.fill_(1.0)
    correction = Inexact(start)
    assert correction.should_stop([model.weight])  # type: ignore[list-item]
    assert correction.reached_gamma == 0
    with torch.no_grad():
        model.weight.fill_(3.0)
    assert not correction.should_stop([model.weight])  # type: ignore[list-item]
    assert correction.reached_gamma == 1


def test_fednova_counts_the_steps_that_were_taken() -> None:
    assert walked(0.5, [EffectiveSteps], gamma=0.3)[1]["effective-steps"] == 2


def test_scaffold_divides_by_the_steps_that_were_taken() -> None:
    """c_k = (w_t - y) / (2 eta) = -0.75 after two steps of ten."""
    model = line()
    training = LocalTraining(optimizer=partial(SGD, lr=0.5), local_epochs=10)
    start = start_of(model, training, POINT, LeastSquares(1), **{"control-option": 2})
    start.content["control"] = ArrayRecord({"weight": torch.zeros(1, 1)})
    both = [ControlVariate(start), Inexact(start, gamma=0.3)]
    metrics = training(model, POINT, LeastSquares(1), server_round=1, seed=0, corrections=both)
    both[0].on_round_end([model.weight], metrics)  # type: ignore[list-item]
    assert start.state.array_records["control"]["weight"].numpy().item() == -0.75


class Dropping(nn.Sequential):
    """A perceptron that draws."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.mark.parametrize("make", [perceptron, Dropping])
@pytest.mark.parametrize("trace", [True, False])
def test_to_look_changes_nothing(make: type[nn.Module], trace: bool) -> None:
    """A gamma that is never reached gives the plain training's model, bit for bit."""
    ends = []
    for looking in (True, False):
        model, data = seeded(make), examples()
        training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=6, batch_size=8, trace=trace)
        start = start_of(model, training, data, Classification())
        looks = [Inexact(start, gamma=1e-9, check_steps=2)] if looking else []
        training(model, data, Classification(), server_round=1, seed=SEED, corrections=looks)
        ends.append(model)
        assert all(look.has_measured == 42 for look in looks)
    assert_equal(*ends)


@pytest.mark.parametrize(
    ("given", "named"), [({"gamma": 1.5}, "gamma"), ({"check_steps": 0}, "check_steps"), ({"mu": -1}, "mu")]
)
def test_what_is_out_of_range_is_refused(given: dict[str, float], named: str) -> None:
    start = start_of(line(), LocalTraining(optimizer=partial(SGD, lr=0.1)), POINT, LeastSquares(1))
    with pytest.raises(ValueError, match=rf"inexact\.{named}=.* is out of range"):
        Inexact(start, **given)  # type: ignore[arg-type]


RUN = (
    "dataset=digits num_nodes=4 model=softmax rounds=3 strategy=fedprox strategy.mu=0.1 "
    "client.local_epochs=20"
)


@pytest.mark.slow
def test_nodes_do_less_on_digits(tmp_path: Path) -> None:
    plain = played(RUN, tmp_path / "plain")
    inexact = "corrections=inexact client.corrections.inexact.gamma"
    reported = played(f"{RUN} {inexact}=0", tmp_path / "reported")
    less = played(f"{RUN} {inexact}=0.3", tmp_path / "less")
    reached = reported[reported.metric == "inexactness"]
    assert reported[reported.metric != "inexactness"].reset_index(drop=True).equals(plain)
    assert (reached.value < 0.3).all()
    assert all(
        curve(less, "train", "local_steps")[t] < curve(plain, "train", "local_steps")[t] for t in range(3)
    )
    assert all(0.05 < gamma <= 0.3 for gamma in curve(less, "train", "inexactness"))
    assert curve(less, "test", "accuracy")[-1] > 0.8


def test_the_term_of_the_corrections_counts() -> None:
    both = "corrections=[proximal,inexact] client.corrections.proximal.mu=0.7"
    (_, inexact) = experiment.load(f"dataset=digits {both}").training.corrections.values()
    assert inexact.keywords["mu"] == 0.7  # type: ignore[attr-defined]
    (alone,) = experiment.load("dataset=digits corrections=inexact").training.corrections.values()
    assert alone.keywords["mu"] is None  # type: ignore[attr-defined]


def test_batched_nodes_train_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    setting, counts = f"{RUN} corrections=inexact", []
    setup = experiment.load(setting)
    for together in (get_batched_trainer(setting), None):
        grid = InlineGrid(client_app_of(setting), 4, together)
        messages = setup.strategy().configure_train(1, setup.initial_arrays(), setup.train_config(), grid)
        counts.append(grid.send_and_receive(messages))
        assert grid.answering.batched_trainer is None
    assert "train one after another: a correction may end a node's round" in caplog.text
    for one, other in zip(*counts, strict=True):
        assert one.content["arrays"] == other.content["arrays"]


@pytest.mark.parametrize(
    ("work", "settings", "acts"),
    [
        ({"local_epochs": 1}, {}, False),
        ({"local_epochs": 1}, {"gamma": 0.0}, True),  # it reports, as it was asked to
        ({"local_epochs": 2}, {}, True),
        ({"local_epochs": 1}, {"check_steps": 3}, True),  # of 4, at the larger node
        ({"local_epochs": 1}, {"check_steps": 4}, False),
        ({"local_epochs": None, "local_steps": 4}, {}, False),
        ({"local_epochs": None, "local_steps": 5}, {}, True),
    ],
)
def test_one_that_can_end_no_round_is_named(
    work: dict[str, int | None], settings: dict[str, float], acts: bool
) -> None:
    """Nodes of 100 and 128 examples take 4 steps of 32 an epoch; one without any takes none."""
    chosen = {"inexact": partial(Inexact, **settings)}  # type: ignore[arg-type]
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), corrections=chosen, **work)  # type: ignore[arg-type]
    lines = training.idle_corrections([0, 100, 128])
    assert bool(lines) is not acts
    assert all(line.startswith("client.corrections.inexact looks after") for line in lines)


def test_a_run_says_so_before_its_first_round(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    check(experiment.load("corrections=inexact model=softmax client.local_epochs=2"))
    assert "ends no round" not in caplog.text
    check(experiment.load("corrections=inexact model=softmax"))
    assert caplog.text.count("client.corrections.inexact looks after a node's last step") == 1
