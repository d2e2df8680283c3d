"""A run that fills cells of several tables has one number there, and not one of each time it was made."""

from collections import defaultdict

import pytest

from baselines.reproduce import paper_tables, results


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_the_same_run_has_the_same_number_in_every_table(paper: str) -> None:
    """Else `--collect-only` the one run into all of them."""
    numbers: dict[tuple[object, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, table in paper_tables.tables(paper).items():
        rows = results.read(paper_tables.PAPERS / paper / "ours" / f"{name}.csv")
        what = (table.metric, table.split, table.reduction, table.measure)
        for row in rows.to_dict("records"):
            numbers[row["config"], row["seed"], what][row["value"]].add(name)
    several = {key: dict(values) for key, values in numbers.items() if len(values) > 1}
    assert not several
