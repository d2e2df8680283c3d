"""Runs from Python: objects for YAML files."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import nn

from baselines import results
from baselines.api import run
from baselines.errors import UserError
from baselines.run import run_experiment
from clients import FedLC, Proximal
from strategies import AgreementMask, FedAvg, FedExP, LocalOnly, PseudoGradientStrategy

SMALL = "dataset=digits num_nodes=3 rounds=2"


class Net(nn.Module):
    """A perceptron."""

    def __init__(self, hidden: int = 8, num_classes: int = 3) -> None:
        super().__init__()
        layers = nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
        self.layers = nn.Sequential(nn.Flatten(), *layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


@dataclass(kw_only=True, eq=False)
class Halved(PseudoGradientStrategy):
    """FedAvg whose update counts for a share; share = 1 is FedAvg."""

    share: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share} is out of range: expected a number in (0, 1]")


def measured(frame: pd.DataFrame) -> list[tuple[int, str, float]]:
    """Return what a frame says of models."""
    rows = frame[(frame.split == "test") & frame.metric.isin(["loss", "accuracy"])]
    return [*zip(rows["round"], rows.metric, rows.value, strict=True)]


def test_an_object_is_the_option_of_the_command_line(tmp_path: Path) -> None:
    given = run(SMALL, strategy=FedExP(), mask=AgreementMask(tau=0.4), folder=tmp_path / "python")
    run_experiment(f"{SMALL} strategy=fedexp mask=agreement", tmp_path / "command")
    assert measured(given) == measured(results.load(tmp_path / "command"))
    assert set(given.status) == {"finished"}


def test_what_a_strategy_leaves_at_fedavgs_is_the_settings(tmp_path: Path) -> None:
    masked = run(f"{SMALL} mask=agreement", strategy=FedAvg(), folder=tmp_path)
    plain = run(SMALL, strategy=FedAvg(), folder=tmp_path)
    inside = run(SMALL, strategy=FedAvg(mask=AgreementMask()), folder=tmp_path)
    assert measured(masked) == measured(inside) != measured(plain)


def test_a_class_and_a_partial_are_called_by_each_node(tmp_path: Path) -> None:
    frame = run(
        SMALL,
        model=partial(Net, hidden=5),
        corrections=partial(Proximal, mu=0.5),
        folder=tmp_path,
        save="last",
    )
    model = results.model(frame.run.iloc[0])
    assert model.layers[1].out_features == 5  # type: ignore[union-attr, index]
    assert model.layers[3].out_features == 10  # type: ignore[union-attr, index]
    assert measured(frame) != measured(run(SMALL, model=partial(Net, hidden=5), folder=tmp_path))


def test_seeds_are_runs_and_a_finished_one_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(SMALL, strategy=Halved(share=0.5), seeds=[0, 1], folder=tmp_path)
    assert set(first.seed) == {0, 1}
    assert len(first.run.unique()) == 2
    capsys.readouterr()
    again = run(SMALL, strategy=Halved(share=0.5), seeds=[0, 1], folder=tmp_path)
    assert capsys.readouterr().out.count("finished already") == 2
    assert measured(first) == measured(again)


def test_other_values_of_an_object_are_another_run(tmp_path: Path) -> None:
    one = run(SMALL, strategy=Halved(share=0.5), folder=tmp_path)
    other = run(SMALL, strategy=Halved(share=0.25), folder=tmp_path)
    assert set(one.run).isdisjoint(other.run)
    assert set(results.load(tmp_path)["strategy.share"]) == {0.5, 0.25}


def test_a_class_of_a_strategy_and_its_partial_are_objects(tmp_path: Path) -> None:
    given = [Halved(share=0.5), partial(Halved, share=0.5)]
    first, second = (run(SMALL, strategy=one, folder=tmp_path / str(k)) for k, one in enumerate(given))
    assert measured(first) == measured(second)
    assert measured(run(SMALL, strategy=FedExP, folder=tmp_path)) == measured(
        run(f"{SMALL} strategy=fedexp")
    )


def test_several_corrections_and_an_optimiser_of_torch(tmp_path: Path) -> None:
    choices: dict[str, Any] = {
        "corrections": [partial(Proximal, mu=0.5), partial(FedLC, tau=0.5)],
        "client_optimizer": partial(torch.optim.Adam, lr=0.01),
    }
    ours = run(SMALL, folder=tmp_path / "python", **choices)
    corrections = (
        "corrections=[proximal,fedlc] client.corrections.proximal.mu=0.5 client.corrections.fedlc.tau=0.5"
    )
    run_experiment(
        f"{SMALL} {corrections} client_optimizer=adam client.optimizer.lr=0.01", tmp_path / "command"
    )
    assert measured(ours) == measured(results.load(tmp_path / "command"))


def test_corrections_have_the_names_that_they_are_given(tmp_path: Path) -> None:
    twice = {"weak": partial(Proximal, mu=0.1), "strong": partial(Proximal, mu=0.4)}
    both = run(SMALL, corrections=twice, folder=tmp_path)
    chosen = yaml.safe_load((Path(both.run.iloc[0]) / "config.yaml").read_text())["client"]["corrections"]
    assert {name: settings["mu"] for name, settings in chosen.items()} == {"weak": 0.1, "strong": 0.4}
    weak = run(SMALL, corrections={"weak": partial(Proximal, mu=0.1)}, folder=tmp_path)
    alone = run(SMALL, corrections=partial(Proximal, mu=0.1), folder=tmp_path)
    assert measured(weak) == measured(alone) != measured(both)
    assert measured(run(SMALL, corrections={}, folder=tmp_path)) == measured(run(SMALL, folder=tmp_path))


def test_plain_values_may_be_numpys_and_paths(tmp_path: Path) -> None:
    place = tmp_path / "a, b (1)"
    frame = run("dataset=digits num_nodes=3", rounds=np.int64(1), data_root=place, folder=tmp_path)
    assert frame["round"].max() == 1
    assert yaml.safe_load((Path(frame.run.iloc[0]) / "config.yaml").read_text())["data_root"] == str(place)


def test_a_run_can_be_told_to_begin_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(SMALL, folder=tmp_path)
    capsys.readouterr()
    again = run(SMALL, folder=tmp_path, resume=False)
    assert "finished already" not in capsys.readouterr().out
    assert set(first.run) == set(again.run)


def test_a_search_path_of_the_users_own_stays(tmp_path: Path) -> None:
    (tmp_path / "conf" / "mask").mkdir(parents=True)
    (tmp_path / "conf" / "mask" / "mine.yaml").write_text("_target_: strategies.AgreementMask\ntau: 0.4\n")
    path = f"hydra.searchpath=[file://{tmp_path}/conf]"
    mine = run(f"{SMALL} mask=mine {path}", strategy=FedAvg(), folder=tmp_path / "runs")
    assert measured(mine) == measured(run(SMALL, mask=AgreementMask(), folder=tmp_path / "runs"))


def test_an_edited_class_of_a_notebook_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    def build(hidden: int) -> type[nn.Module]:
        class Cell(Net):
            width = hidden

            def __init__(self) -> None:
                super().__init__(hidden=self.width, num_classes=10)

        Cell.__module__, Cell.__qualname__ = "__main__", "Cell"
        monkeypatch.setattr(__main__, "Cell", Cell, raising=False)
        return Cell

    monkeypatch.delattr(__main__, "__file__", raising=False)  # a notebook has none
    one, other = (run(SMALL, model=build(hidden), folder=tmp_path) for hidden in (4, 9))
    assert set(one.run).isdisjoint(other.run)
    assert measured(one) != measured(other)


@pytest.mark.slow
def test_on_ray_an_object_gives_the_same_bytes(tmp_path: Path) -> None:
    inline = run(SMALL, strategy=FedExP(), folder=tmp_path)
    ray = run(SMALL, strategy=FedExP(), runtime="ray", folder=tmp_path)
    assert measured(inline) == measured(ray)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"strategy": FedAvg(seed=3)}, "seed"),
        ({"strategy": FedAvg(num_nodes=3)}, "num_nodes"),
        ({"model": Net()}, "functools.partial"),
        ({"rounds": Net}, "no group of options"),
        ({"strategy": lambda: FedAvg()}, "top level"),
        ({"strategy": "fedavg", "rounds": 0}, "rounds=0"),
        ({"strategy": FedAvg(mask=AgreementMask()), "mask": "none"}, "set twice"),
        ({"strategy": FedAvg(mask=AgreementMask()), "mask": AgreementMask(tau=0.1)}, "set twice"),
        ({"strategy": partial(Halved, share=2.0)}, "share=2.0"),
        ({"node_timeot": 3}, "node_timeout"),
        ({"seed": 3}, "seeds="),
        ({"strategy": LocalOnly(inner=FedAvg())}, "wraps another strategy"),
        ({"strategy": LocalOnly}, "wraps another strategy"),
        ({"private": ["body"]}, "private=list"),
        (
            {"corrections": ["proximal", "fedlc"]},
            r"corrections has 'proximal': choose options by name in the",
        ),
        (
            {"corrections": [0.5]},
            r"corrections has 0\.5: expected a correction's class, or a functools.partial",
        ),
        (
            {"corrections": {"proximal": {"mu": 0.5}}},
            r"corrections has {'mu': 0\.5}: expected a correction's",
        ),
        (
            {"corrections": [Proximal, Proximal]},
            "corrections has two of Proximal: name them, {'weak': partial",
        ),
        (
            {"corrections": partial(Proximal, 0.5)},
            r"corrections: name the arguments of the partial, partial\(",
        ),
        ({"mask": {"tau": 0.4}}, r"mask is given a dict: write each .*, run\('mask\.tau=\.\.\.'\)"),
        (
            {"personal": {"strength": 0.4}},
            r"personal is given a dict: .*'client\.personal\.strength=\.\.\.'",
        ),
        ({"evaluation": {"per_node": True}}, r"evaluation is given a dict: .*run\('evaluation\.per_node="),
    ],
)
def test_what_cannot_be_an_option_is_refused_in_one_line(
    choices: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words) as refused:
        run(SMALL, folder=tmp_path, **choices)
    assert "\n" not in str(refused.value)


def test_what_only_a_notebook_has_does_not_go_to_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    class Here(Net):
        pass

    Here.__module__, Here.__qualname__ = "__main__", "Here"
    monkeypatch.setattr(__main__, "Here", Here, raising=False)
    assert measured(run(SMALL, model=Here, folder=tmp_path))
    with pytest.raises(UserError, match="runtime=inline"):
        run(SMALL, model=Here, runtime="ray", folder=tmp_path)


@pytest.mark.slow
def test_data_that_have_changed_are_read_again(tmp_path: Path) -> None:
    """As a notebook's user changes a table between two cells."""
    play = tmp_path / "play.txt"
    play.write_text("A:\nthe king has a ring\n\nB:\nthe mill and the river\n")
    small = (
        f"dataset=speech dataset.load.path={play} dataset.load.length=4 num_nodes=2 rounds=1 model.hidden=8"
    )
    first = measured(run(small, folder=tmp_path / "first"))
    play.write_text("A:\nno king has a coat\n\nB:\nthe hill and the ocean\n")
    assert measured(run(small, folder=tmp_path / "second")) != first
    with pytest.raises(UserError, match=r"play\.txt, which has changed"):
        run(small, folder=tmp_path / "first")
