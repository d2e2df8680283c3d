"""What a user's own app or class may get slightly wrong: it is refused or named, never another method."""

import logging
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.app import MetricRecord, RecordDict
from torch import Tensor

from helpers.federation import Federation, answer, model_in, play, record, round_of, sent_model
from helpers.server_data import Functions
from strategies import (
    Constant,
    FedAvg,
    FedDyn,
    FedMeta,
    Grouped,
    LocalPrivacy,
    Mask,
    SelectiveFedAvg,
    StepSize,
    Uniform,
    Weighting,
)
from strategies.core.pseudo_gradient import PseudoGradientStrategy
from strategies.core.strategy import TooManyFailedRounds
from strategies.parts.layout import Layout

START = record({"w": np.zeros(1, np.float32)})


def constant(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer with the partition's number."""
    return answer({"w": np.array([partition_id], np.float32)})


def stock(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer as a client that knows nothing of this suite: it moves by 5, and that is all."""
    arrays = record({"w": sent_model(content)["w"] + 5})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})


def test_groups_are_of_partitions_whatever_the_nodes_are_called() -> None:
    """The ids descend, so that the order of the nodes is not that of what they hold."""
    strategy = Grouped(inner=FedAvg(), groups={"a": (0,), "b": (1, 2)})
    play(strategy, Federation(constant, {300: 0, 200: 1, 100: 2}), START)
    models = {
        name: model_in(arrays)["w"].item() for name, arrays in strategy.models_to_evaluate(START).items()
    }
    assert models == {"a": 0.0, "b": 1.5}


@pytest.mark.parametrize(
    ("strategy", "level"), [(FedAvg(query_partitions=True), "INFO"), (FedAvg(members=(0,)), "WARNING")]
)
def test_nodes_that_do_not_say_what_they_hold_are_warned_of_where_it_matters(
    strategy: FedAvg, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr"):
        play(strategy, Federation(constant, {300: 0, 200: 1}, query=False), START)
    (record,) = [one for one in caplog.records if "ordered by node id" in one.getMessage()]
    assert record.levelname == level


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        (
            FedAvg(weighting=Uniform(), privacy=LocalPrivacy(clip=1.0, noise_multiplier=1.0)),
            "does not say that it noised its update",
        ),
        (FedDyn(alpha=0.1), "does not keep FedDyn's gradient"),
    ],
)
def test_a_stock_client_does_not_pass_for_one_that_does_its_part(
    strategy: PseudoGradientStrategy, fault: str
) -> None:
    with pytest.raises(TooManyFailedRounds, match=fault):
        strategy.start(Federation(stock, 2), START, num_rounds=1)


def test_without_strength_a_stock_client_will_do() -> None:
    ((arrays, _),) = play(FedDyn(alpha=0.0), Federation(stock, 2), START)
    assert model_in(arrays)["w"].item() == 5


def test_parts_that_would_not_be_read_are_refused() -> None:
    class Undecorated(PseudoGradientStrategy):
        step_size: StepSize = Constant(0.5)

    @dataclass(kw_only=True, eq=False)
    class Unannotated(PseudoGradientStrategy):
        step_size = Constant(0.5)

    @dataclass(kw_only=True, eq=False)
    class Right(PseudoGradientStrategy):
        weighting: Weighting = Uniform()
        step_size: StepSize = Constant(0.5)

    for kind in (Undecorated, Unannotated):
        with pytest.raises(
            ValueError, match=rf"{kind.__name__}.step_size is not a dataclass field.*@dataclass"
        ):
            kind()
    assert (Right().weighting, Right().step_size) == (Uniform(), Constant(0.5))


def test_a_mask_that_returns_its_factors_or_whose_idle_is_a_method_is_refused() -> None:
    class Returning(Mask):
        is_identity = False

        def mask_values(self, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
            return torch.ones(deltas.shape[1])  # type: ignore[return-value]

    with pytest.raises(TypeError, match=r"Returning\.mask_values returns its values: write them to out"):
        play(FedAvg(mask=Returning()), Federation(constant, 2), START)
    with pytest.raises(TypeError, match=r"Busy\.is_identity is a method: decorate it with @property"):
        type("Busy", (Mask,), {"is_identity": lambda self: False})


def test_one_text_is_no_list_of_buffers() -> None:
    with pytest.raises(ValueError, match=r"buffer_names='scale': expected a tuple, \('scale',\)"):
        Layout.of(START, "scale")


@pytest.mark.parametrize(
    ("strategy", "rounds", "message"),
    [
        (
            SelectiveFedAvg(inner=FedAvg(), server_data=Functions(lambda models: torch.ones(1, 1))),
            3,
            "rounds=3 is out",
        ),
        (
            SelectiveFedAvg(inner=FedAvg(), local_rounds=1),
            3,
            "SelectiveFedAvg needs examples on the server",
        ),
        (
            FedMeta(),
            3,
            "FedMeta needs examples on the server: set validation_size, or call set_server_data before",
        ),
    ],
)
def test_start_refuses_before_the_first_round_what_would_fail_after_the_last(
    strategy: PseudoGradientStrategy, rounds: int, message: str
) -> None:
    federation = Federation(constant, 2)
    with pytest.raises(ValueError, match=message):
        strategy.start(federation, START, num_rounds=rounds)
    assert not federation.requests


def test_a_start_without_a_single_step_ends_with_an_error() -> None:
    def broken(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": np.array([np.nan], np.float32)})

    with pytest.raises(TooManyFailedRounds, match="2 rounds in a row failed"):
        FedAvg().start(Federation(broken, 2), START, num_rounds=2)


def test_a_start_with_one_step_ends_well() -> None:
    def late(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": np.array([np.nan if round_of(content) == 2 else 1.0], np.float32)})

    result = FedAvg().start(Federation(late, 2), START, num_rounds=2)
    assert model_in(result.arrays)["w"].item() == 1
