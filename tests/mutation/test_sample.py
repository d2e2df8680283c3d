"""The sample of mutants: seeded, and from every folder."""

from collections import Counter
from pathlib import Path

from helpers.checkout import ROOT
from helpers.mutation.sample import FOLDERS, dealt, files


def test_every_item_once_and_the_seed_alone_decides() -> None:
    sizes = [3, 10, 1]
    order = dealt(sizes, seed=1)
    assert sorted(order) == [(group, item) for group, size in enumerate(sizes) for item in range(size)]
    assert dealt(sizes, seed=1) == order != dealt(sizes, seed=2)


def test_each_beginning_has_each_groups_share() -> None:
    sizes = [405, 394, 246, 68]
    for seed in range(20):
        counts = Counter(group for group, _ in dealt(sizes, seed)[:90])
        assert all(abs(counts[group] - 90 * size / sum(sizes)) < 2 for group, size in enumerate(sizes))


def test_every_file_of_both_packages_and_their_tests_are_there() -> None:
    actual = files()
    assert {Path(file).parts[0] for file in actual} == set(FOLDERS)
    for folder in FOLDERS:
        assert (ROOT / "tests" / folder).is_dir()
        packages = {path.parent.relative_to(ROOT) for path in (ROOT / folder).rglob("__init__.py")}
        assert packages <= {Path(file).parent for file in actual}
