"""The list of mutants that are not counted stays true to the code."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SPARED = yaml.safe_load(Path(__file__).with_name("spared.yaml").read_text(encoding="utf-8"))


def test_each_line_is_in_its_file_and_has_a_reason() -> None:
    assert SPARED
    for each in SPARED:
        assert each.keys() == {"file", "line", "mutation", "reason"}
        lines = (ROOT / each["file"]).read_text(encoding="utf-8").splitlines()
        assert each["line"] in [" ".join(line.split()) for line in lines], each
        assert each["mutation"] != each["line"]
        assert each["reason"].startswith(("equivalent: ", "limit: ")), each


def test_none_is_listed_twice() -> None:
    keys = [(each["file"], each["line"], each["mutation"]) for each in SPARED]
    assert len(set(keys)) == len(keys)


def test_the_page_counts_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "development" / "reliability.md").read_text(
        encoding="utf-8"
    )
    reasons = [one["reason"].partition(":")[0] for one in SPARED]
    assert f"{reasons.count('equivalent')} are equivalent" in page
    assert f"{reasons.count('limit')} change a limit" in page
    assert set(reasons) == {"equivalent", "limit"}
