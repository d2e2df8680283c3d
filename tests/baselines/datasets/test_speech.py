"""A play, a speaker a node: next characters, windows, and sequences as targets."""

from pathlib import Path

import numpy as np
import pytest

from baselines.datasets import speech
from baselines.datasets.speech import VOCABULARY, split_by_speaker, windows
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from helpers.runs import curve, played

PLAY = "ROMEO:\nHe jests at scars\nthat never felt.\n\nJULIET:\nAy me! O Romeo\n\nROMEO:\nShe speaks.\n"


def test_speeches_are_put_together_by_speaker() -> None:
    assert split_by_speaker(PLAY) == {
        "ROMEO": "He jests at scars\nthat never felt.\nShe speaks.",
        "JULIET": "Ay me! O Romeo",
    }


def test_windows_overlap_by_one_and_targets_are_the_next_characters() -> None:
    assert windows("abcde", 2).tolist() == [[66, 67, 68], [68, 69, 70]]  # "a" is 97 - 31
    assert windows("a\né\t.", 4).tolist() == [[66, 0, 32, 32, 15]]  # what is not printable is "?", 63 - 31
    assert windows("ab", 2).shape == (0, 3)


def test_the_last_windows_of_each_speaker_are_for_testing(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text(PLAY)
    data = speech(f"{tmp_path}/play.txt", 3, 0.3, 0)
    assert (len(data.train_targets), len(data.test_targets)) == (14, 5)  # 15 and 4 examples, 4 and 1 tests
    assert data.owners is not None
    assert data.owners.tolist() == [0] * 3 + [1] * 11  # by name
    assert data.train_inputs[0].tolist() == windows("Ay m", 3)[0, :3].tolist()
    assert (data.train_targets[:, :-1] == data.train_inputs[:, 1:]).all()


def test_a_text_without_speakers_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text("It was a dark and stormy night.")
    for path, message in (("prose.txt", "has 0 speakers"), ("none.txt", "cannot be read")):
        with pytest.raises(UserError, match=message):
            speech(f"{tmp_path}/{path}", 3, 0.3, 0)


def test_the_generated_play_depends_on_its_seed_alone() -> None:
    one, same, other = (speech(None, 40, 0.2, seed) for seed in (0, 0, 1))
    assert (one.train_targets == same.train_targets).all()
    assert one.train_targets.shape != other.train_targets.shape
    assert int(one.train_targets.max()) < VOCABULARY


@pytest.mark.slow
def test_each_node_is_a_speaker_and_a_run_learns(tmp_path: Path) -> None:
    experiment = Experiment("dataset=speech")
    owners = experiment.dataset.owners
    assert owners is not None
    assert [set(owners[part].tolist()) for part, _ in experiment.partitions] == [{k} for k in range(10)]
    rows = played("dataset=speech rounds=3 client.optimizer.lr=1 model.hidden=32", tmp_path)
    losses = curve(rows, "test", "loss")
    assert losses[-1] < losses[0] - 0.4
    assert 0 < curve(rows, "test", "accuracy")[-1] < 1


@pytest.mark.parametrize("partitioner", ["dirichlet", "iid", "quantity_skew"])
def test_sequences_are_partitioned_by_their_labels(partitioner: str) -> None:
    experiment = Experiment(f"dataset=speech partitioner={partitioner} num_nodes=4")
    rows = np.concatenate([part for part, _ in experiment.partitions])
    assert sorted(rows.tolist()) == [*range(len(experiment.dataset.train_targets))]


def test_a_partitioner_by_labels_without_labels_is_a_mistake() -> None:
    from dataclasses import replace

    data = replace(Experiment("dataset=speech").dataset, labels=None, test_labels=None)
    assert len(Experiment("dataset=speech partitioner=iid", data).partitions) == 10
    with pytest.raises(UserError, match="Dirichlet splits by labels, but the data set's targets are none"):
        Experiment("dataset=speech partitioner=dirichlet", data).partitions  # noqa: B018
