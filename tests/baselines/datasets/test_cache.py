"""The cache of arrays: shared, checked, written whole or not at all."""

import logging
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.datasets import cache
from baselines.datasets.cache import load_cached

ARRAYS = {
    "images": np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4),
    "labels": np.array([3, 1], dtype=np.int64),
    "mean": np.array([0.5], dtype=np.float32),
    "turned": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
    "empty": np.empty((0, 5), dtype=np.uint8),
}


class Builder:
    """Counts how often the arrays are built."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return ARRAYS


def use(root: Path, build: Builder, settings: object = None, name: str = "set") -> dict[str, torch.Tensor]:
    arrays = load_cached(name, settings, root, [root / "source"], build)
    assert arrays.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[key].numpy(), array)
        assert arrays[key].numpy().dtype == array.dtype
    return arrays


def the_file(root: Path) -> Path:
    (file,) = (root / "florilegium-cache").iterdir()  # and no temporary file beside it
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "source").mkdir(parents=True)
    (tmp_path / "data" / "source" / "file").write_bytes(b"raw")
    return tmp_path / "data"


def test_builds_once_and_reads_ever_after(root: Path) -> None:
    build = Builder()
    for _ in range(3):
        use(root, build)
    assert build.calls == 1
    with np.load(the_file(root)) as file:  # anyone can read it
        np.testing.assert_array_equal(file["images"], ARRAYS["images"])


def test_images_are_mapped_and_changes_stay_private(root: Path) -> None:
    build = Builder()
    first, second = use(root, build)["images"], use(root, build)["images"]
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(the_file(root)) in maps.read_text()
    first[0, 0, 0] = 77
    assert second[0, 0, 0] == 0
    use(root, build)
    assert build.calls == 1


def test_settings_and_names_have_files_of_their_own(root: Path) -> None:
    build = Builder()
    use(root, build, ("a", 1))
    use(root, build, ("a", 2))
    use(root, build, ("a", 2), name="other")
    assert build.calls == 3
    use(root, build, ("a", 1))
    assert build.calls == 3


def test_a_changed_source_is_built_anew(root: Path) -> None:
    build = Builder()
    use(root, build)
    (root / "source" / "file").write_bytes(b"other")
    use(root, build)
    (root / "source" / "more").write_bytes(b"")
    use(root, build)
    assert build.calls == 3
    the_file(root)  # the old ones are replaced


def test_a_file_with_the_same_size_and_time_is_another(root: Path) -> None:
    build, file = Builder(), root / "source" / "file"
    use(root, build)
    before = file.stat()
    (root / "other").write_bytes(b"war")
    os.utime(root / "other", ns=(before.st_atime_ns, before.st_mtime_ns))
    (root / "other").replace(file)
    use(root, build)
    assert build.calls == 2


def test_a_file_behind_a_link_is_looked_at(root: Path) -> None:
    build, linked = Builder(), root / "linked"
    linked.mkdir()
    (linked / "file").write_bytes(b"one")
    (root / "source" / "cat").symlink_to(linked)
    (linked / "back").symlink_to(root / "source")  # which would have no end
    use(root, build)
    (linked / "file").write_bytes(b"another")
    use(root, build)
    assert build.calls == 2


def test_a_source_that_is_replaced_while_it_is_read_is_read_again(root: Path) -> None:
    file, read = root / "source" / "file", []

    def build() -> dict[str, np.ndarray]:
        read.append(file.read_bytes())
        if len(read) == 1:
            file.write_bytes(b"replaced")
        return {"bytes": np.frombuffer(read[-1], np.uint8)}

    for _ in range(2):
        arrays = load_cached("set", None, root, [root / "source"], build)
        assert arrays["bytes"].numpy().tobytes() == b"replaced"
    assert read == [b"raw", b"replaced"]


def test_a_cache_within_its_source_is_no_part_of_it(root: Path) -> None:
    build = Builder()
    for _ in range(2):
        load_cached("set", None, root, [root], build)
    assert build.calls == 1


@pytest.mark.parametrize("position", ["magic", "header", "image", "label", "directory", "end"])
def test_one_wrong_byte_is_found_named_and_mended(
    root: Path, position: str, caplog: pytest.LogCaptureFixture
) -> None:
    build = Builder()
    use(root, build)
    file = the_file(root)
    content = bytearray(file.read_bytes())
    places = {
        "magic": 0,
        "header": content.index(b"'descr'"),
        "image": content.index(ARRAYS["images"].tobytes()) + 5,
        "label": content.index(ARRAYS["labels"].tobytes()),
        "directory": content.rindex(b"PK\x01\x02"),
        "end": content.rindex(b"PK\x05\x06") + 1,
    }
    content[places[position]] ^= 0x10
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING, "flwr.datasets"):
        use(root, build)
    assert build.calls == 2
    (record,) = caplog.records
    assert str(file) in record.getMessage()
    assert "damaged" in record.getMessage()
    assert "\n" not in record.getMessage()
    use(root, build)
    assert build.calls == 2


@pytest.mark.parametrize("kept", [0, 10, 500, -30, -1])
def test_a_half_written_file_is_found(root: Path, kept: int, caplog: pytest.LogCaptureFixture) -> None:
    build = Builder()
    use(root, build)
    file = the_file(root)
    content = file.read_bytes()
    file.write_bytes(content[:kept])
    with caplog.at_level(logging.WARNING, "flwr.datasets"):
        use(root, build)
    assert build.calls == 2
    assert len(caplog.records) <= 1  # the very last byte belongs to the stamp: then it is merely stale
    assert file.read_bytes() == content or zipfile.is_zipfile(file)


def test_a_failed_write_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder()

    def no_space(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(cache.os, "fsync", no_space)
    use(root, build)
    use(root, build)
    assert build.calls == 2  # every process keeps its own copy
    assert not any((root / "florilegium-cache").iterdir())


def test_a_read_only_data_folder_is_left_alone(root: Path, own_cache: Path) -> None:
    build = Builder()
    root.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        use(root, build)
        use(root, build)
    finally:
        root.chmod(0o755)
    assert build.calls == 1
    assert not (root / "florilegium-cache").exists()
    assert len(list(own_cache.iterdir())) == 1


def test_two_data_folders_do_not_share_a_file(tmp_path: Path, own_cache: Path) -> None:
    build = Builder()
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
        root.chmod(0o555)
    try:
        for root in roots:
            use(root, build)
    finally:
        for root in roots:
            root.chmod(0o755)
    assert build.calls == 2
    assert len(list(own_cache.iterdir())) == 2


def test_an_error_in_building_is_the_caller_s(root: Path) -> None:
    def build() -> dict[str, np.ndarray]:
        raise RuntimeError("no such data")

    with pytest.raises(RuntimeError, match="no such data"):
        load_cached("set", None, root, [], build)


@pytest.mark.slow
def test_processes_that_build_at_once_end_with_one_sound_file(root: Path) -> None:
    script = (
        "import sys, pathlib, numpy as np\n"
        "from baselines.datasets.cache import load_cached\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "big = lambda: {'images': np.full((3000, 784), 7, np.uint8)}\n"
        "for _ in range(5):\n"
        "    assert int(load_cached('set', None, root, [], big)['images'].sum()) == 7 * 3000 * 784\n"
    )
    repository = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(repository)}
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(root)], env=environment, cwd=repository)
        for _ in range(3)
    ]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    the_file(root)
