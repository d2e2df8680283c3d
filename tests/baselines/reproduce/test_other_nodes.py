"""For how many rounds other nodes count, worked out by hand."""

from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.reproduce.statistics import rounds_with_others


def run_with(weights: list[list[float]], folder: Path) -> Path:
    lines = [
        f"{number},train,global,weight_{node},{value}"
        for number, row in enumerate(weights, 1)
        for node, value in enumerate(row)
    ]
    other = ["0,test,global,accuracy,0.5", "3,train,global,loss,0.5", "3,test,global,weight_1,1.0"]
    text = "\n".join(["round,split,model,metric,value", *lines, *other])
    (folder / "metrics.csv").write_text(text + "\n")
    return folder


def test_a_round_counts_while_one_other_weight_is_left(tmp_path: Path) -> None:
    assert rounds_with_others(run_with([[1, 1, 1], [1, 1e-6, 0], [1, 0, 0], [1, 0, 0]], tmp_path)) == 2


def test_where_no_weight_reaches_zero_all_rounds_count(tmp_path: Path) -> None:
    assert rounds_with_others(run_with([[1, 1], [1, 0.7], [1, 0.4]], tmp_path)) == 3


def test_a_requester_who_is_alone_from_the_start(tmp_path: Path) -> None:
    assert rounds_with_others(run_with([[1, 0], [1, 0]], tmp_path)) == 0


def test_a_run_without_weights_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no weights of nodes: run it with strategy=weight_erosion"):
        rounds_with_others(run_with([], tmp_path))
