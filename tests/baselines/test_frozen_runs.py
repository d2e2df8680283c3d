"""Whole runs of a model that is mostly frozen: bytes, what is saved, and what a resumed run does."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from baselines.experiment.experiment import Experiment
from helpers.runs import App, played


class Tuned(nn.Module):
    """A large frozen layer under a small one that is trained."""

    def __init__(self, num_classes: int, **_: object) -> None:
        super().__init__()
        self.below, self.above = nn.Linear(64, 2000), nn.Linear(2000, num_classes)
        self.below.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.above(torch.relu(self.below(x.flatten(1))))  # type: ignore[no-any-return]


class Normed(Tuned):
    """Its frozen layer has a batch norm, which keeps the statistics that it came with, and a table."""

    frozen_buffers = ("table",)

    def __init__(self, num_classes: int, keeps: bool = True, **_: object) -> None:
        super().__init__(num_classes)
        self.keeps, self.norm = keeps, nn.BatchNorm1d(2000)
        self.norm.requires_grad_(False)
        self.norm.running_mean.fill_(0.25)  # type: ignore[union-attr]
        self.register_buffer("table", torch.ones(2000))

    def train(self, mode: bool = True) -> "Normed":
        super().train(mode)
        self.norm.train(mode and not self.keeps)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.above(torch.relu(self.norm(self.below(x.flatten(1)) * self.table)))  # type: ignore[no-any-return]


FROZEN, TRAINED = 64 * 2000 + 2000, 2000 * 10 + 10
SETTING = (
    f"'++model={{_target_: {__name__}.Tuned, num_classes: 10}}' dataset=digits num_nodes=3 rounds=3 "
    "count_bytes=true"
)


def bytes_in(metrics: pd.DataFrame, name: str) -> list[float]:
    counts = metrics[(metrics.metric == name) & (metrics.model == "global")]
    return [float(value) for value in counts.sort_values("round").value]


def test_a_round_costs_what_is_trained_and_the_saved_model_is_whole(tmp_path: Path) -> None:
    metrics = played(f"{SETTING} save=last", tmp_path)
    down, up = bytes_in(metrics, "bytes_down"), bytes_in(metrics, "bytes_up")
    most = 1.05 * 4 * TRAINED * 3
    assert down[0] > 4 * (FROZEN + TRAINED) * 3
    assert all(size <= most for size in (*down[1:], *up))
    start, end = Experiment(SETTING).model().state_dict(), load_file(tmp_path / "model.safetensors")
    assert {name for name in start if torch.equal(start[name], end[name])} == {"below.weight", "below.bias"}


def test_the_statistics_of_a_frozen_batch_norm_travel_once(tmp_path: Path) -> None:
    setting = SETTING.replace(".Tuned", ".Normed")
    metrics = played(f"{setting} save=last", tmp_path)
    down, up = bytes_in(metrics, "bytes_down"), bytes_in(metrics, "bytes_up")
    assert down[0] > 4 * (FROZEN + TRAINED) * 3
    assert all(size <= 1.05 * 4 * TRAINED * 3 for size in (*down[1:], *up))
    start, end = Experiment(setting).model().state_dict(), load_file(tmp_path / "model.safetensors")
    assert {name for name in start if not torch.equal(start[name], end[name])} == {
        "above.weight",
        "above.bias",
    }


def test_statistics_that_move_travel_in_each_round(tmp_path: Path) -> None:
    setting = SETTING.replace(".Tuned, ", ".Normed, keeps: false, ")
    metrics = played(f"{setting} save=last", tmp_path)
    assert all(size > 4 * (TRAINED + 4000) * 3 for size in bytes_in(metrics, "bytes_up"))
    start, end = Experiment(setting).model().state_dict(), load_file(tmp_path / "model.safetensors")
    assert not torch.equal(start["norm.running_mean"], end["norm.running_mean"])
    assert torch.equal(start["table"], end["table"])


@pytest.mark.slow
def test_compression_sends_what_is_trained_alone(tmp_path: Path) -> None:
    metrics = played(f"{SETTING} compression=top_k compression.share=0.1", tmp_path)
    assert all(size <= 0.25 * 4 * TRAINED * 3 for size in bytes_in(metrics, "bytes_up"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", ["", "strategy=local", "client.private=[above.bias] node_test_fraction=0.2"]
)
def test_a_resumed_run_sends_what_an_uninterrupted_one_sends(more: str, tmp_path: Path) -> None:
    def interrupted_in_round_3(app: App) -> App:
        def interrupted(message, context):  # type: ignore[no-untyped-def]
            config = message.content.config_records.get("config", {}) if message.has_content() else {}
            if message.metadata.message_type == "train" and config["server-round"] == 3:
                raise KeyboardInterrupt
            return app(message, context)

        return interrupted

    setting = f"{SETTING} {more} checkpoint_every=1 resume=true"
    with pytest.raises(KeyboardInterrupt):
        played(setting, tmp_path / "one", interrupted_in_round_3)
    one, whole = played(setting, tmp_path / "one"), played(setting, tmp_path / "whole")
    timed = "seconds"
    one, whole = (table[~table.metric.str.contains(timed)].reset_index(drop=True) for table in (one, whole))
    pd.testing.assert_frame_equal(one, whole)
