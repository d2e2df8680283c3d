"""Names of Flower's and of the papers: taken where we have the same thing, else answered with ours."""

import re
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy
from omegaconf import OmegaConf

import strategies
from baselines.experiment.validation import find_wrong_types
from helpers.federation import Federation, Model, answer, model_in, play, record, sent_model
from strategies import (
    ByExamples,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedER,
    FedExP,
    FedGMA,
    FedNova,
    FedProx,
    FedYogi,
    Grouped,
    LocalOnly,
    QFedAvg,
    Scaffold,
    WeightErosion,
)

ADVICE: list[tuple[type, str, str]] = [
    (FedYogi, "tau", "set server_optimizer=Yogi(epsilon=...)"),
    (FedYogi, "beta_2", "set server_optimizer=Yogi(beta2=...)"),
    (FedAdagrad, "tau", "set server_optimizer=Adagrad(epsilon=...)"),
    (FedAdagrad, "beta_1", "set server_optimizer=Adagrad(beta1=...)"),
    (FedAdagrad, "beta_2", "leave it out: its server_optimizer, Adagrad, has none"),
    (FedAdam, "tau", "set server_optimizer=Adam(epsilon=...)"),
    (FedAdam, "eta", "set step_size=Constant(eta=...)"),
    (FedGMA, "tau", "set mask=AgreementMask(tau=...)"),
    (FedAvg, "tau", "set mask=AgreementMask(tau=...), as FedGMA, or"),
    (FedAvg, "server_learning_rate", "set step_size=Constant(eta=...)"),
    (FedExP, "server_learning_rate", "leave it out: its step_size, Extrapolated, has none"),
    (FedExP, "eta", "leave it out: its step_size, Extrapolated, has none"),
    (FedAvg, "server_momentum", "set server_optimizer=Momentum(beta=...)"),
    (FedAvgM, "server_momentum", "set server_optimizer=Momentum(beta=...)"),
    (FedExP, "min_train_nodes", "set min_replies"),
    (Scaffold, "min_available_nodes", "set num_nodes"),
    (FedAvg, "min_evaluate_nodes", "leave it out: fraction_evaluate"),
    (FedProx, "proximal_mu", "set mu"),
    (FedAvg, "proximal_mu", "choose FedProx(mu=...)"),
    (FedAvg, "arrayrecord_key", "leave it out: messages carry the model as 'arrays'"),
    (FedAvg, "configrecord_key", "leave it out: messages carry their configuration as 'config'"),
    (FedAvg, "weighted_by_key", "set weighting=ByExamples(key=...)"),
    (FedExP, "weighted_by_key", "set weighting=ByExamples(key=...)"),
    (FedER, "weighted_by_key", "leave it out: its weighting, EffectiveRank, has none"),
    (FedAdam, "eta_l", "leave it out: the nodes' learning rate is their ClientApp's"),
    (QFedAvg, "client_learning_rate", "set aggregation=Fair(lipschitz=1 / client_learning_rate)"),
    (FedAvg, "client_learning_rate", "leave it out: the nodes' learning rate is their ClientApp's"),
    (QFedAvg, "q", "set aggregation=Fair(q=...)"),
    (FedAvg, "q", "set aggregation=Fair(q=...) and weighting=Uniform()"),
    (QFedAvg, "train_loss_key", "leave it out: nodes send"),
    (FedAvg, "beta", "set aggregation=TrimmedMean(share=...) and weighting=Uniform()"),
    (FedAvgM, "beta", "set server_optimizer=Momentum(beta=...)"),
    (FedAvg, "num_malicious_nodes", "set aggregation=Krum(num_hostile=...) and weighting=Uniform()"),
    (FedAvg, "num_nodes_to_select", "set aggregation=Krum(num_selected=...) and weighting=Uniform()"),
    (FedNova, "num_malicious_nodes", "leave it out: its aggregation, Normalized, has none"),
]
OF_PARTS: list[tuple[type, str, str]] = [  # the papers' letters
    (FedExP, "epsilon", "set step_size=Extrapolated(epsilon=...)"),
    (FedAdam, "beta1", "set server_optimizer=Adam(beta1=...)"),
    (WeightErosion, "requester", "set weighting=Erosion(requester=...)"),
]


@pytest.mark.parametrize(("kind", "name", "instead"), ADVICE)
def test_a_name_of_flowers_is_answered_with_that_of_the_class(kind: Any, name: str, instead: str) -> None:
    with pytest.raises(TypeError) as error:
        kind(**{name: 2})
    assert str(error.value).startswith(f"{kind.__name__} has no {name}, a name of Flower's: {instead}")


@pytest.mark.parametrize(("kind", "name", "instead"), OF_PARTS)
def test_so_is_a_setting_of_a_part(kind: Any, name: str, instead: str) -> None:
    with pytest.raises(TypeError) as error:
        kind(**{name: 2})
    assert str(error.value) == f"{kind.__name__} has no {name}: {instead}"


@pytest.mark.parametrize(("kind", "name", "instead"), [*ADVICE[:9], *OF_PARTS])
def test_so_is_what_is_set_after_construction(kind: Any, name: str, instead: str) -> None:
    strategy = kind()
    with pytest.raises(AttributeError, match=f"{kind.__name__} has no {name}"):
        setattr(strategy, name, 2)
    strategy.min_replies, strategy.note = 3, "mine"
    assert (strategy.min_replies, strategy.note) == (3, "mine")


NUMBERS = {"beta": 0.5, "beta1": 0.5, "beta2": 0.5, "share": 0.1, "key": "'n'"}


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (kind, advice)
        for kind, _, advice in ADVICE + OF_PARTS
        if advice.startswith("set ") and "=" in advice
    ],
)
def test_what_an_advice_says_can_be_written(kind: type, instead: str) -> None:
    given = instead.removeprefix("set ").split(", as ")[0].replace(" and ", ", ")
    given = re.sub(r"(\w+)=\.\.\.", lambda match: f"{match[1]}={NUMBERS.get(match[1], 1)}", given)
    assert eval(f"{kind.__name__}({given})", {**vars(strategies), "client_learning_rate": 0.1})


def test_a_strategy_around_others_names_the_inner_one() -> None:
    with pytest.raises(TypeError, match=r"^Grouped has no fraction_evaluate: set it in inner$"):
        Grouped(inner=FedAvg(), fraction_evaluate=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^LocalOnly has no tau, .*: in inner, set server_optimizer=Yogi"):
        LocalOnly(inner=FedYogi(), tau=0.5)  # type: ignore[call-arg]


def test_a_strategy_of_ones_own_may_use_such_a_name() -> None:
    @dataclass(kw_only=True, eq=False)
    class Mine(FedAvg):
        tau: float = 0.5

    assert Mine(tau=0.1).tau == 0.1
    with pytest.raises(TypeError, match="unexpected keyword argument 'unheard_of'"):
        Mine(unheard_of=1)  # type: ignore[call-arg]


def test_keywords_that_are_handed_on_are_answered_too_and_those_that_are_used_are_not() -> None:
    class Mine(FedYogi):
        def __init__(self, **given: Any) -> None:
            self.eta = given.pop("eta", 0.1)
            super().__init__(**given)

    assert Mine(eta=0.5, min_replies=2).eta == 0.5
    with pytest.raises(
        TypeError, match=r"^Mine has no tau, .*: set server_optimizer=Yogi\(epsilon=\.\.\.\)"
    ):
        Mine(tau=0.5)


def test_a_keyword_that_kwargs_turn_into_an_attribute_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(FedAvg):
        def __init__(self, **given: Any) -> None:
            super().__init__()
            for name, value in given.items():
                setattr(self, name, value)

    Mine(min_available_nodes=3)
    assert "Mine has no min_available_nodes, a name of Flower's: set num_nodes" in caplog.text


def trained(partition_id: int, content: RecordDict) -> RecordDict:
    metrics = {"epsilon": 1.0 + partition_id, "weight": 0.5 + partition_id}
    return answer({"w": sent_model(content)["w"] + partition_id}, 3 - partition_id, **metrics)


def largest(replies: list[RecordDict], key: str) -> MetricRecord:
    assert all(key in reply.metric_records["metrics"] for reply in replies)
    values = [reply.metric_records["metrics"]["epsilon"] for reply in replies]
    return MetricRecord({"largest": max(values)})  # type: ignore[type-var]


def after_a_round(strategy: Strategy) -> tuple[Model, MetricRecord]:
    ((arrays, metrics),) = play(strategy, Federation(trained, 3), record({"w": np.zeros(2)}))
    return model_in(arrays), metrics


def test_metrics_are_what_the_users_function_makes_of_the_replies() -> None:
    _, metrics = after_a_round(FedAvg(train_metrics_aggr_fn=largest))
    assert metrics["largest"] == 3.0
    assert metrics["replies"] == 3
    assert "epsilon" not in metrics


def test_so_are_those_of_an_evaluation() -> None:
    strategy, grid = FedAvg(evaluate_metrics_aggr_fn=largest), Federation(trained, 3)
    result = strategy.start(grid, record({"w": np.zeros(2)}), num_rounds=1)
    assert dict(result.evaluate_metrics_clientapp[1]) == {"largest": 3.0}


def test_what_is_no_function_and_what_gives_no_record_is_refused() -> None:
    with pytest.raises(ValueError, match="train_metrics_aggr_fn=max is out of range: expected a function"):
        FedAvg(train_metrics_aggr_fn="max")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="train_metrics_aggr_fn returned a float, expected a MetricRecord"):
        after_a_round(FedAvg(train_metrics_aggr_fn=lambda replies, key: 1.0))  # type: ignore[arg-type,return-value]


def test_nodes_count_by_another_metric() -> None:
    """As Flower's weighted_by_key, for models and for metrics, also where nodes send no num-examples."""

    def keyed(partition_id: int, content: RecordDict) -> RecordDict:
        content = trained(partition_id, content)
        del content["metrics"]["num-examples"]
        return content

    stock = flower.FedAvg(weighted_by_key="weight", min_train_nodes=3, min_available_nodes=3)
    start = record({"w": np.zeros(2)})
    ((theirs, metrics),) = play(stock, Federation(keyed, 3), start)
    ((ours, own_metrics),) = play(FedAvg(weighting=ByExamples(key="weight")), Federation(keyed, 3), start)
    np.testing.assert_allclose(model_in(ours)["w"], model_in(theirs)["w"])
    np.testing.assert_allclose(model_in(ours)["w"], (1.5 * 1 + 2.5 * 2) / 4.5)
    assert own_metrics["epsilon"] == pytest.approx(metrics["epsilon"])
    assert "weight" not in own_metrics
    result = FedAvg(weighting=ByExamples(key="weight")).start(Federation(keyed, 3), start, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["epsilon"] == pytest.approx((0.5 + 3 + 7.5) / 4.5)


@pytest.mark.parametrize(("share", "count"), [(0.3, 3), (0.29, 2), (0.01, 1), (1.0, 10)])
def test_a_share_of_the_nodes_trains(share: float, count: int) -> None:
    drawn = []
    for seed in (0, 0, 1):
        grid = Federation(trained, 10)
        strategy = FedAvg(fraction_train=share, query_partitions=True, num_nodes=10, seed=seed)
        play(strategy, grid, record({"w": np.zeros(2)}))
        drawn.append(grid.trained())
    assert [len(each) for each in drawn] == [count] * 3
    assert drawn[0] == drawn[1]
    assert strategy.max_nodes_in_round == count


def test_a_share_of_the_nodes_evaluates() -> None:
    grid = Federation(trained, 10)
    FedAvg(fraction_evaluate=0.4, num_nodes=10).start(grid, record({"w": np.zeros(2)}), num_rounds=2)
    kinds = [kind for kind, _ in grid.requests]
    assert kinds == ["train"] * 10 + ["evaluate"] * 4 + ["train"] * 10 + ["evaluate"] * 4
    judges = [k for kind, k in grid.requests if kind == "evaluate"]
    assert judges[:4] != judges[4:]
    FedAvg(fraction_evaluate=0, num_nodes=10).start(grid, record({"w": np.zeros(2)}), num_rounds=1)
    assert [kind for kind, _ in grid.requests[len(kinds) :]] == ["train"] * 10


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"fraction_train": 2}, "fraction_train=2 is out of range: expected above 0, at most 1, or None"),
        ({"fraction_train": 0}, "fraction_train=0 is out of range"),
        (
            {"fraction_train": 0.5, "nodes_per_round": 3},
            "fraction_train=0.5 is out of range: expected None",
        ),
        ({"fraction_evaluate": 1.5}, r"fraction_evaluate=1.5 is out of range: expected in \[0, 1\]"),
    ],
)
def test_a_share_out_of_range_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        FedAvg(**given)


class Annotated(strategies.FedAvg):
    """A strategy of a user's own; its module imports a name for type checkers alone."""

    def __init__(self, extra: "Unknown | None" = None, rate: "float | None" = None, **others: Any) -> None:  # type: ignore[name-defined]  # noqa: F821
        super().__init__(**others)
        self._extra, self._rate = extra, rate


def test_a_class_that_names_types_for_type_checkers_alone_has_a_signature() -> None:
    assert list(signature(Annotated).parameters) == ["extra", "rate", "others"]
    node = OmegaConf.create({"_target_": f"{__name__}.Annotated", "extra": 1.5, "rate": 0.5})
    assert not [*find_wrong_types(node)]
