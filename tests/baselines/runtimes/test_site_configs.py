"""What a site's node is told, as Flower reads it."""

from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from baselines.errors import UserError
from baselines.runtimes import sites


def test_flower_reads_a_sites_name_and_path(tmp_path: Path) -> None:
    folder = tmp_path / "own data, d'north = 1"
    paths = sites.check_sites({"north-1": str(folder), "south": "data"}, 2, True)
    first, second = (parse_config_args([config]) for config in sites.node_configs(paths, 2))
    assert first == {"site": "north-1", "data": str(folder)}
    assert second == {"site": "south", "data": str(Path("data").resolve())}


def test_without_sites_nodes_hold_partitions() -> None:
    actual = [parse_config_args([config]) for config in sites.node_configs({}, 2)]
    assert actual == [{"partition-id": k, "num-partitions": 2} for k in range(2)]


@pytest.mark.parametrize("wrong", [{"no name": "x"}, {"": "x"}, {"north": 'a"b'}])
def test_what_flower_could_not_read_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"runtime\.sites"):
        sites.check_sites(wrong, 1, True)
