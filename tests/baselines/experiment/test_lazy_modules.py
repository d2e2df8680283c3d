"""Models with lazy modules: they have their shapes before round 1, by the same draws."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from baselines import results
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from helpers.runs import played

RUN = "dataset=digits num_nodes=3 rounds=2"


class Net(nn.Sequential):
    """Flattens, and then two layers, whose shapes are given or learnt; a normalisation between them."""

    def __init__(self, lazy: bool, num_classes: int = 10, **_: object) -> None:
        super().__init__(
            nn.Flatten(),
            nn.LazyLinear(12) if lazy else nn.Linear(64, 12),
            nn.LazyBatchNorm1d() if lazy else nn.BatchNorm1d(12),
            nn.LazyLinear(num_classes) if lazy else nn.Linear(12, num_classes),
        )


class Unused(nn.Module):
    def __init__(self, **_: object) -> None:
        super().__init__()
        self.used, self.spare = nn.LazyLinear(10), nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x.flatten(1))  # type: ignore[no-any-return]


class Wrong(nn.Module):
    def __init__(self, **_: object) -> None:
        super().__init__()
        self.used = nn.LazyLinear(10)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x.flatten(1)[:, :, None, None].expand(2, 3))  # type: ignore[no-any-return]


def with_model(name: str, more: str = "") -> str:
    return f"'++model={{_target_: {__name__}.{name}{more}}}' {RUN}"


@pytest.mark.slow
def test_a_run_is_that_of_the_shapes(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Each layer draws when it has its shape, here in the same order."""
    lazy, given = (
        played(f"{with_model('Net', f', lazy: {lazy}')} save=last", tmp_path / lazy)
        for lazy in ("true", "false")
    )
    timed = lazy.metric.str.contains("seconds")
    assert lazy[~timed].equals(given[~timed])
    assert not [one for one in recwarn if "Lazy modules" in str(one.message)]
    models = [results.model(tmp_path / lazy).state_dict() for lazy in ("true", "false")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[1])


def test_statistics_are_as_before_any_example() -> None:
    model = Experiment(with_model("Net", ", lazy: true")).model()
    assert model.training
    assert model[2].running_mean.tolist() == [0.0] * 12  # type: ignore[index,union-attr,operator]
    assert int(model[2].num_batches_tracked) == 0  # type: ignore[index,union-attr,arg-type]


@pytest.mark.slow
def test_a_predictor_needs_no_data(tmp_path: Path) -> None:
    played(f"{with_model('Net', ', lazy: true')} save=last", tmp_path)
    rows = Experiment(RUN).dataset.test_inputs[:5]
    assert len(results.predictor(tmp_path)(rows).classes) == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unused", "the model's spare.weight has no shape, as its forward does not use it"),
        ("Wrong", "learn their shapes from two examples, which it does not take"),
    ],
)
def test_what_stays_without_a_shape_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Experiment(with_model(name)).model()
