"""Each listed damage to the data of each reader: refused in one line that helps, or harmless."""

from pathlib import Path

import pytest

from helpers.fuzz.damaged_data import READERS, fault_of, leak_of


@pytest.mark.parametrize("name", READERS)
def test_each_damage_is_refused_or_harmless(name: str, tmp_path: Path) -> None:
    faults = []
    for number, (kind, damage) in enumerate(READERS[name].damages.items()):
        (tmp_path / str(number)).mkdir()
        if fault := fault_of(READERS[name], damage, tmp_path / str(number)):
            faults.append(f"{kind}: {fault}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "public",
    [
        "data: column 'surname' is empty in 3 rows",
        "data: /srv/data.csv cannot be read",
        "schema: the labels Secret3 are not in the schema",
        "data: ValueError",
        "it cannot be read",
    ],
)
def test_a_line_that_may_not_leave_a_site_is_found(public: str) -> None:
    assert leak_of(public)
    assert not leak_of("data: column 'age' of the schema is empty in 30 rows")
