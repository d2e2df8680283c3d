"""One strategy of each kind, and nodes that serve all of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from helpers.every_part import AGGREGATIONS, MASKS, NODES, OPTIMIZERS, STEP_SIZES, WEIGHTINGS
from helpers.federation import (
    Model,
    answer,
    chosen_model,
    model_in,
    record,
    round_of,
)
from helpers.server_data import Functions, Products
from strategies import (
    AFL,
    IFCA,
    AgreementMask,
    CoDistillation,
    Distillation,
    Extrapolated,
    FedAdagrad,
    FedAdam,
    FedAMS,
    FedAsync,
    FedAvg,
    FedAvgM,
    FedBuff,
    FedCM,
    FedDF,
    FedDyn,
    FedER,
    FedExP,
    FedGMA,
    FedLAMB,
    FedLARS,
    FedMeta,
    FedNova,
    FedProto,
    FedProx,
    FedYogi,
    Grouped,
    HypCluster,
    InverseVariance,
    LocalOnly,
    Median,
    MimeLite,
    Oort,
    PowerOfChoice,
    PseudoGradientStrategy,
    QFedAvg,
    Scaffnew,
    Scaffold,
    SelectiveFedAvg,
    SignSGD,
    Uniform,
    WeightErosion,
    WeightErosionForAll,
    Yogi,
)
from strategies.shared import protocol


def correctness_fn(models: Sequence[ArrayRecord]) -> Tensor:
    """Stand in for a validation set: selection vectors that depend on the models."""
    rows = [torch.from_numpy(model_in(arrays)["fc.weight"] > 0).flatten() for arrays in models]
    return torch.stack(rows)


def level(arrays: ArrayRecord) -> ArrayRecord:
    """Stand in for the gradient of a loss that is the same everywhere; tests of FedMeta's have slopes."""
    return record({name: np.zeros_like(values) for name, values in model_in(arrays).items()})


Make = Callable[[], Strategy]
BRIEF, INPUTS = Distillation(steps=4, lr=0.1, batch_size=3), (0.5, -1.0, 2.0, 1.5)
BASE = PseudoGradientStrategy
STRATEGIES: dict[str, Make] = {
    **{f"weighting={k}": lambda part=part: BASE(weighting=part) for k, part in WEIGHTINGS.items()},
    **{f"optimizer={k}": lambda part=part: BASE(server_optimizer=part) for k, part in OPTIMIZERS.items()},
    **{
        f"aggregation={k}": lambda part=part: BASE(aggregation=part, weighting=Uniform())
        for k, part in AGGREGATIONS.items()
    },
    "median-masked": lambda: FedAdam(
        aggregation=Median(), weighting=Uniform(), mask=AgreementMask(0.5), average_last=2
    ),
    **{f"mask={k}": lambda part=part: BASE(mask=part) for k, part in MASKS.items()},
    **{f"step_size={k}": lambda part=part: BASE(step_size=part) for k, part in STEP_SIZES.items()},
    "all-four": lambda: BASE(
        weighting=InverseVariance(),
        server_optimizer=Yogi(),
        mask=AgreementMask(0.5),
        step_size=Extrapolated(),
    ),
    "sampled": lambda: FedAvg(nodes_per_round=3, num_nodes=NODES, seed=7),
    "averaged": lambda: FedAvgM(average_last=3, mask=AgreementMask(0.5)),
    **{
        kind.__name__: kind
        for kind in (FedAvg, FedAvgM, FedExP, FedProx, FedGMA, FedAdagrad, FedAdam, FedYogi, FedER)
    },
    **{
        kind.__name__: kind
        for kind in (
            FedAsync,
            FedBuff,
            FedNova,
            QFedAvg,
            SignSGD,
            FedAMS,
            FedLARS,
            FedLAMB,
            AFL,
            FedCM,
            MimeLite,
            PowerOfChoice,
            Oort,
        )
    },
    "FedAsync": lambda: FedAsync(alpha=1),  # less than 1 keeps a share of the server's model
    "pow-d": lambda: PowerOfChoice(asks=True),
    "WeightErosion": WeightErosion,
    "Scaffold": lambda: Scaffold(num_nodes=NODES),
    "Scaffnew": lambda: Scaffnew(num_nodes=NODES),
    "FedDyn": lambda: FedDyn(num_nodes=NODES),
    "FedMeta": lambda: FedMeta(server_data=Functions(gradient=level)),
    "Grouped": lambda: Grouped(inner=FedExP(), groups={"low": (0, 1), "high": (2, 3, 4)}),
    "LocalOnly": lambda: LocalOnly(inner=FedAvgM()),
    "IFCA": lambda: IFCA(server_optimizer=Yogi(), mask=AgreementMask(0.5)),
    "HypCluster": lambda: HypCluster(num_models=3, nodes_per_round=4, num_nodes=NODES),
    "FedProto": FedProto,
    "SelectiveFedAvg": lambda: SelectiveFedAvg(inner=FedAvgM(), server_data=Functions(correctness_fn)),
    "FedDF": lambda: FedDF(distillation=BRIEF, server_data=Products("fc.weight", INPUTS)),
    "CoDistillation": lambda: CoDistillation(
        inner=FedAvgM(), distillation=BRIEF, server_data=Products("fc.weight", INPUTS)
    ),
    "WeightErosionForAll": lambda: WeightErosionForAll(inner=WeightErosion()),
}


def parts_of(strategy: Strategy) -> PseudoGradientStrategy:
    inner = strategy.inner if isinstance(strategy, Grouped) else strategy
    assert isinstance(inner, PseudoGradientStrategy)
    return inner


def asking(strategy: Strategy) -> Strategy:
    """Return the same that asks each node for its partition."""
    parts = replace(parts_of(strategy), query_partitions=True)
    return replace(strategy, inner=parts) if isinstance(strategy, Grouped) else parts


all_strategies = pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)


def moved(model: Model, rng: np.random.Generator) -> Model:
    """Return the model somewhere else; integers grow."""
    return {
        name: np.asarray(values + 0.2 * rng.normal(size=values.shape)).astype(values.dtype)
        if values.dtype.kind == "f"
        else values + rng.integers(9)
        for name, values in model.items()
    }


def reply(
    content: RecordDict, model: Model, partition_id: int, steps: float = 3.0, rate: float = 0.1
) -> RecordDict:
    """Answer as a node would that serves every strategy."""
    metrics = {protocol.GRADIENT_VARIANCE: 0.5 + partition_id, protocol.EFFECTIVE_STEPS: steps}
    metrics |= {protocol.START_LOSS: 0.1 + partition_id, protocol.LEARNING_RATE: rate}
    metrics |= {protocol.LOCAL_STEPS: steps, protocol.LOSS: 0.5 + partition_id}
    metrics |= {protocol.SQUARED_LOSS: 0.3 + partition_id}
    out = answer(model, partition_id + 1, **metrics)
    if protocol.CONTROL in content.array_records:
        control = model_in(content.array_records[protocol.CONTROL])
        out[protocol.CONTROL] = record(moved(control, np.random.default_rng(partition_id)))
    if protocol.MOMENTUM in content.array_records:
        momentum = model_in(content.array_records[protocol.MOMENTUM])
        out[protocol.FULL_GRADIENT] = record(moved(momentum, np.random.default_rng(partition_id)))
    config = content.config_records[protocol.CONFIG]
    if protocol.NUM_MODELS in config:
        out.metric_records[protocol.METRICS][protocol.CHOSEN_MODEL] = partition_id % int(
            config[protocol.NUM_MODELS]
        )
    if protocol.PROTOTYPES in config:
        means = np.random.default_rng([partition_id, round_of(content)]).normal(
            size=model["fc.weight"].shape
        )
        out[protocol.PROTOTYPES] = record({"means": means, "counts": np.array([partition_id, 2])})
    return out


def drifting(partition_id: int, content: RecordDict) -> RecordDict:
    """Return a model that depends on the partition and the round alone."""
    rng = np.random.default_rng([partition_id, round_of(content)])
    return reply(
        content, moved(chosen_model(partition_id, content), rng), partition_id, steps=3.0 + partition_id
    )
