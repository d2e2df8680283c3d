"""The documentation's tables of options list what there is in conf/."""

import re

import pytest

from baselines.experiment.overrides import CONF, SHARED
from helpers.checkout import ROOT

ROW = re.compile(r"^\|.*?`(\w+)=`(.*)\|$", re.MULTILINE)
LISTED = [
    (page, group, options)
    for page in ("README.md", "docs/data.md")
    for group, options in ROW.findall((ROOT / page).read_text(encoding="utf-8"))
    if group not in ("strategy", "runtime")  # headings of other tables
]


@pytest.mark.parametrize(("page", "group", "options"), LISTED)
def test_a_row_lists_every_option_of_its_group(page: str, group: str, options: str) -> None:
    files = {path.stem for path in (CONF / group).glob("*.yaml")} - {*SHARED}
    assert set(re.findall(r"`(\w+)`", options)) == files


def test_the_rows_are_found() -> None:
    assert {"step_size", "weighting", "client", "dataset"} <= {group for _, group, _ in LISTED}
