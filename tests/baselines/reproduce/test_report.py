"""What is made of results: one number per cell, its spread, its label, and the paper's findings."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from baselines.errors import UserError
from baselines.reproduce import report, results
from baselines.reproduce.findings import Comparison, comparisons, pairs
from baselines.reproduce.paper_tables import PaperTable
from baselines.reproduce.plan import plan, select, table_of
from baselines.reproduce.results import Keys, Ours, Results

pytestmark = pytest.mark.usefixtures("papers")
KEYS = {"a": ("0.2", "fedexp"), "b": ("0.2", "fedavg"), "c": ("0.1", "fedavg")}


def rows(*values: tuple[str, int, float, str, str]) -> pd.DataFrame:
    """Return rows of ours from (cell, seed, value, changes, config)."""
    return pd.DataFrame(
        [
            {
                "rate": KEYS[cell][0],
                "method": KEYS[cell][1],
                "seed": str(seed),
                "value": str(value),
                "rounds": "2" if changes else "4",
                "changes": changes,
                "config": config,
            }
            for cell, seed, value, changes, config in values
        ]
    )


def settings(*values: tuple[str, int, float, str, str]) -> dict[Keys, list[Ours]]:
    configs = {keys: {"new"} for keys in KEYS.values()}
    return results.settings(table_of("tiny", "table1"), rows(*values), configs)


def ours(*values: tuple[str, int, float, str, str]) -> Results:
    return results.ours(settings(*values))


def test_mean_and_spread_over_seeds() -> None:
    own = ours(("a", 0, 91.0, "", "new"), ("a", 1, 93.0, "", "new"), ("b", 0, 90.0, "", "new"))
    a, b = own[KEYS["a"]], own[KEYS["b"]]
    assert (a.mean, a.std, a.note) == (92.0, pytest.approx(2**0.5), "")
    assert (b.mean, b.std) == (90.0, None)


def test_the_papers_setting_comes_before_a_reduced_one() -> None:
    own = ours(("a", 0, 50.0, "rounds=2", "x"), ("a", 0, 91.0, "", "new"), ("b", 0, 60.0, "rounds=2", "x"))
    assert own[KEYS["a"]] == Ours({0: 91.0}, "")
    assert own[KEYS["b"]] == Ours({0: 60.0}, "rounds=2")
    assert own[KEYS["b"]].note == "not the paper's setting: rounds=2"


def test_a_number_of_an_earlier_configuration_says_so_and_gives_way() -> None:
    old = ("a", 0, 80.0, "", "old")
    assert ours(old)[KEYS["a"]].note == "of an earlier configuration"
    assert ours(old, ("a", 1, 91.0, "", "new"))[KEYS["a"]] == Ours({1: 91.0}, "")


def test_numbers_of_other_settings_follow_those_with_most_rounds_first() -> None:
    cells = settings(
        ("a", 0, 50.0, "rounds=2", "x"),
        ("a", 0, 70.0, "", "old"),
        ("a", 0, 91.0, "", "new"),
        ("b", 0, 60.0, "rounds=2 seed=1", "x"),
        ("b", 0, 61.0, "rounds=2", "y"),
        ("b", 1, 63.0, "rounds=2", "y"),
    )
    assert cells[KEYS["a"]] == [Ours({0: 91.0}, ""), Ours({0: 50.0}, "rounds=2")]
    assert cells[KEYS["b"]] == [Ours({0: 60.0}, "rounds=2 seed=1"), Ours({0: 61.0, 1: 63.0}, "rounds=2")]


def findings(*values: tuple[str, int, float, str, str]) -> Comparison:
    table = table_of("tiny", "table1")
    (several,) = comparisons(table, table.findings[0], settings(*values))
    return report.counting(several)


def of(cell: str, *values: float) -> list[tuple[str, int, float, str, str]]:
    return [(cell, seed, value, "", "new") for seed, value in enumerate(values)]


def test_findings() -> None:
    """Differences of 3, 4 and 5: mean 4, standard error 1/sqrt(3), Student's t of 2 degrees 4.30265."""
    a, b = of("a", 91, 93, 95), of("b", 88, 89, 90)
    pair = findings(*a, *b)
    assert pair.keys == {"rate": "0.2"}
    assert (pair.paper, pair.ours, pair.seeds, pair.verdict) == (1.0, 4.0, 3, "confirmed")
    assert pair.interval == pytest.approx((4 - 4.302653 / 3**0.5, 4 + 4.302653 / 3**0.5))
    assert findings(*a, *of("b", 90, 91, 92)).verdict == "undecided"  # 2 ± 2.48
    assert findings(*a, *of("b", 96, 97, 98)).verdict == "contradicted"
    assert findings(*a[:2], *b[:2]).verdict == "undecided"  # two seeds: 3.5 ± 6.35
    assert findings(*a[:2], *of("b", 90.0, 91.9)).verdict == "confirmed"  # 1.05 ± 0.64
    assert findings(*a[:2], *of("b", 90.7, 92.7)).verdict == "undecided"  # equal: no spread
    assert Comparison({}, None, float("nan"), (float("nan"),) * 2).verdict == "undecided"  # has diverged
    assert findings(*a, b[0]).verdict == "undecided"  # a single seed
    assert findings(*a).verdict == "not run"
    assert findings(*a, ("b", 0, 70.0, "rounds=2", "x")).verdict == "not run"  # not to be compared


def test_a_pair_is_compared_in_each_setting_that_both_were_run_in() -> None:
    """One more run, of the paper's setting or longer, takes no comparison away."""
    small = [("a", 0, 50.0, "rounds=2", "x"), ("b", 0, 40.0, "rounds=2", "x")]
    other = [("a", 0, 60.0, "seed=3", "y"), ("b", 0, 65.0, "seed=3", "y")]
    table = table_of("tiny", "table1")
    alone = ("a", 0, 70.0, "rounds=7", "z"), ("a", 0, 90.0, "", "new")
    for more in ((), alone):
        (comparison,) = comparisons(table, table.findings[0], settings(*small, *other, *more))
        assert [(pair.ours, pair.departs) for pair in comparison] == [
            (None, False),
            (10.0, True),
            (-5.0, True),
        ]
        assert report.counting(comparison) == comparison[1]
    ((whole, *further),) = comparisons(
        table, table.findings[0], settings(*small, *alone, ("b", 0, 88.0, "", "new"))
    )
    assert (whole.ours, whole.departs) == (2.0, False)
    assert [pair.ours for pair in further] == [10.0]


def test_a_finding_may_hold_of_equals() -> None:
    pair = findings(*of("a", 91), *of("b", 91))
    assert (pair.ours, pair.ahead, replace(pair, or_equal=True).ahead) == (0.0, False, True)
    worse = findings(*of("a", 91), *of("b", 92))
    assert not replace(worse, or_equal=True).ahead
    assert not Comparison({}, None, None, None, or_equal=True).ahead


def test_only_seeds_that_both_were_run_with_are_compared() -> None:
    a = [("a", seed, 91.0 + seed, "", "new") for seed in (0, 1, 2)]
    b = [("b", seed, 80.0 + seed, "", "new") for seed in (2, 1, 7)]
    pair = findings(*a, *b)
    assert (pair.ours, pair.seeds) == (11.0, 2)
    assert findings(a[0], b[0]).verdict == "not run"


def test_a_finding_may_compare_several_with_several() -> None:
    table = table_of("tiny", "figure1")
    cells = {("fedavg",): [Ours({0: 0.5}, "")], ("bad",): [Ours({0: 0.9}, "")]}
    finding = {"text": "", "column": "method", "better": ["fedavg", "bad"], "worse": ["bad", "fedavg"]}
    actual = {tuple(pair.keys.values()): pair.ours for (pair,) in comparisons(table, finding, cells)}
    assert actual[("fedavg", "bad")] == pytest.approx(0.4)
    assert actual[("bad", "fedavg")] == pytest.approx(-0.4)


def test_less_loss_is_better() -> None:
    table = table_of("tiny", "figure1")
    cells = {("fedavg",): [Ours({0: 0.5, 1: 0.6}, "")], ("bad",): [Ours({0: 1.99, 1: 2.11}, "")]}
    finding = {"text": "", "column": "method", "better": "fedavg", "worse": "bad"}
    ((pair,),) = comparisons(table, finding, cells)
    assert pair.ours == pytest.approx(1.5)
    assert pair.verdict == "confirmed"  # 1.5 ± 0.13


def test_markdown_keeps_the_papers_order_and_labels_every_number() -> None:
    text = report.markdown(
        table_of("tiny", "table1"),
        settings(("c", 0, 80.0, "rounds=2", "x"), ("a", 0, 91.0, "", "new"), ("a", 1, 93.0, "", "new")),
    )
    lines = [line for line in text.splitlines() if line.startswith("| 0.")]
    assert lines == [
        "| 0.2 | fedexp | 91.50 ± 0.50 | 92.00 ± 1.41 | 2 | +0.50 |  |",
        "| 0.2 | fedavg | 90.50 |  |  |  | `--where rate=0.2,method=fedavg` |",
        "| 0.1 | fedavg |  | 80.00 | 1 |  | not the paper's setting: rounds=2 |",
    ]
    assert "An empty row is filled by `python -m baselines.reproduce tiny table1` with the" in text
    assert "| FedExP beats FedAvg | 1 of 1 | 0 | 0 | 0 | 1 |  |" in text
    assert "Further settings" not in text


def test_a_number_of_another_setting_is_labelled_in_every_place() -> None:
    cells = settings(
        ("a", 0, 91.0, "rounds=2", "x"), ("b", 0, 90.0, "rounds=2", "x"), ("b", 0, 80.0, "rounds=1", "y")
    )
    text = report.markdown(table_of("tiny", "table1"), cells)
    note = "not the paper's setting: rounds="
    assert (
        f"| 0.2 | fedexp | 91.50 ± 0.50 | 91.00 | 1 |  | {note}2 |" in text
    )  # no difference from the paper's
    assert (
        f"## Further settings\n\n| rate | method | ours | seeds | note |\n| --- |{' --- |' * 4}\n" in text
    )
    assert f"| 0.2 | fedavg | 80.00 | 1 | {note}1 |\n\n## Findings" in text
    assert "| 1 of 1; 1 not in the paper's setting |" in text


def test_a_disagreement_is_shown_with_its_numbers() -> None:
    cells = settings(
        *[
            (cell, seed, 90.0 + (cell == "b") * (3 + seed / 10), "", "new")
            for cell in "ab"
            for seed in (0, 1)
        ]
    )
    text = report.markdown(table_of("tiny", "table1"), cells)
    assert "* FedExP beats FedAvg; rate 0.2: ours -3.05 (-3.69 to -2.41), paper +1.00\n" in text
    reduced = {
        keys: [replace(one, changes="rounds=2") for one in numbers] for keys, numbers in cells.items()
    }
    text = report.markdown(table_of("tiny", "table1"), reduced)
    assert "ours -3.05 (-3.69 to -2.41), paper +1.00; not the paper's setting\n" in text


# ---- from metrics.csv to rows -------------------------------------------------------------------------


def with_metrics(folder: Path, values: list[float]) -> Path:
    folder.mkdir()
    lines = ["round,split,model,metric,value", "1,train,global,accuracy,9"]
    lines += [
        f"{r},test,{m},accuracy,{v + d}" for r, v in enumerate(values) for m, d in (("x", 0.1), ("y", -0.1))
    ]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(("reduction", "number"), [("last", 20.0), ("best", 90.0), ("last10", 38.0)])
def test_reductions(tmp_path: Path, reduction: str, number: float) -> None:
    values = [0.1, 0.1, 0.9] + [0.4] * 9 + [0.2]
    table = table_of("tiny", "table1")
    table = PaperTable(**{**vars(table), "reduction": reduction})
    curve = results.read_curve(table, with_metrics(tmp_path / "run", values))
    assert results.reduce_curve(table, curve) == pytest.approx(number)


def test_the_best_loss_is_the_least() -> None:
    table = PaperTable(**{**vars(table_of("tiny", "figure1")), "reduction": "best"})
    assert results.reduce_curve(table, pd.Series([3.0, 1.0, 2.0])) == 1.0


def test_new_rows_take_the_place_of_old_ones() -> None:
    table = table_of("tiny", "table1")
    old = rows(("b", 0, 1.0, "", "old"), ("a", 0, 2.0, "", "old"), ("a", 0, 3.0, "rounds=2", "old"))
    new = rows(("a", 1, 5.0, "", "new"), ("a", 0, 4.0, "", "new")).to_dict("records")
    merged = results._merge_rows(table, old, new, [])
    actual = list(zip(merged.method, merged.seed, merged.changes, merged.value, strict=True))
    assert actual == [
        ("fedexp", "0", "", "4.0"),
        ("fedexp", "1", "", "5.0"),
        ("fedexp", "0", "rounds=2", "3.0"),
        ("fedavg", "0", "", "1.0"),
    ]


def test_results_of_the_same_configuration_and_versions_are_not_missing() -> None:
    table = table_of("tiny", "table1")
    one, two = plan(table, select(table, "rate=0.2,method=fedavg"), (0, 1), "full", (), Path("out"))
    row = {"config": one.config, "seed": "0", **results.versions()}
    assert results.known_trials([one, two], pd.DataFrame([row])) == {one.folder.name}
    assert results.known_trials([one, two], pd.DataFrame([row | {"torch": "1.0"}])) == set()
    assert results.known_trials([one, two], pd.DataFrame()) == set()


def test_a_measure_takes_the_place_of_a_metric(tmp_path: Path) -> None:
    table = PaperTable(**{**vars(table_of("tiny", "table1")), "measure": "os.path.getsize", "lower": True})
    (tmp_path / "run").write_text("four")
    assert results._value(table, tmp_path / "run") == 400.0
    assert table.subject == "getsize"
    assert results.reduce_curve(table, pd.Series([3.0, 1.0, 2.0])) == 1.0  # of less being better


def test_a_measure_may_be_a_curve_by_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = vars(table_of("tiny", "table1")) | {"measure": "x.losses", "by": "epoch", "reduction": "last"}
    curve = pd.Series([0.7, 0.6, 0.65], index=[0, 10, 20])
    monkeypatch.setattr(results, "get_method", lambda name: lambda folder: curve)
    table = PaperTable(**fields)
    assert results._value(table, tmp_path) == pytest.approx(65.0)  # times the table's scale
    assert results.read_curve(table, tmp_path).index.tolist() == [0, 10, 20]


def test_one_seed_is_enough_where_it_decides_nothing() -> None:
    table = PaperTable(**{**vars(table_of("tiny", "table1")), "seeded": False})
    cells = results.settings(table, rows(("a", 0, 91.0, "", "new"), ("b", 0, 90.5, "", "new")), {})
    ((pair,),) = comparisons(table, table.findings[0], cells)
    assert (pair.ours, pair.interval, pair.verdict) == (0.5, (0.5, 0.5), "confirmed")
    text = report.markdown(table, cells)
    assert "| 0.2 | fedexp | 91.50 ± 0.50 | 91.00 | 1 |" in text
    assert "The seed decides nothing" in text
    assert "with one seed" not in text


def test_a_metric_may_be_the_mean_of_several(tmp_path: Path) -> None:
    """The weights of Weight Erosion, one metric for each node."""
    weights = [(1, 0, 1.0), (1, 1, 0.5), (2, 0, 1.0), (2, 1, 0.0)]
    lines = ["round,split,model,metric,value", "1,train,global,loss,7"]
    lines += [f"{r},train,global,weight_{k},{value}" for r, k, value in weights]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    actual = results.read_curve(_weights_table(), tmp_path)
    assert actual.to_dict() == {1: 0.75, 2: 0.5}
    assert _weights_table().subject.startswith("mean train weight, ")


def test_a_metric_that_was_not_measured_is_named(tmp_path: Path) -> None:
    folder = with_metrics(tmp_path / "run", [0.5])
    with pytest.raises(UserError, match=r"run has no weight_\* on the train set$"):
        results.read_curve(_weights_table(), folder)


def _weights_table() -> PaperTable:
    fields = vars(table_of("tiny", "table1")) | {"metric": "weight_*", "split": "train", "scale": 1.0}
    return PaperTable(**fields)


GAIN = {"column": "method", "better": "fedexp", "worse": "fedavg"}
OF_RATES = {"text": "", "column": "rate", "better": "0.1", "worse": "0.2", "gain": GAIN}


def test_a_finding_may_compare_gains() -> None:
    """At rate 0.2 FedExP gains 1 and 2, at 0.1 it gains 5 and 4: 4 and 2 more; in the paper one is missing."""
    values = {("0.2", "fedexp"): (91, 93), ("0.2", "fedavg"): (90, 91), ("0.1", "fedavg"): (80, 80)}
    cells = {keys: [Ours(dict(enumerate(own)), "")] for keys, own in values.items()}
    cells[("0.1", "fedexp")] = [Ours({0: 85, 1: 84, 2: 99}, "")]
    table = table_of("tiny", "table1")
    whole = PaperTable(**{**vars(table), "name": "no printed numbers: all combinations are cells"})
    ((pair,),) = comparisons(whole, OF_RATES, cells)
    assert (pair.ours, pair.by_seed, pair.keys) == (3.0, {0: 4, 1: 2}, {})
    assert not list(comparisons(table, OF_RATES, cells))  # a cell of the four is none of the paper's
    loss = PaperTable(**{**vars(whole), "lower": True})
    ((pair,),) = comparisons(loss, OF_RATES, cells)
    assert pair.ours == -3.0
    assert len(list(pairs(PaperTable(**{**vars(whole), "findings": (OF_RATES,)})))) == 2


def test_a_finding_may_set_a_level() -> None:
    table = table_of("tiny", "table1")
    finding = {"text": "", "below": 92, "where": {"method": "fedexp"}}
    ((pair,),) = comparisons(table, finding, settings(*of("a", 91.0, 90.5, 90.0)))
    assert (pair.ours, pair.paper, pair.verdict) == (1.5, 0.5, "confirmed")
    ((pair,),) = comparisons(table, finding, settings())
    assert pair.verdict == "not run"
    ((pair, small),) = comparisons(table, finding, settings(("a", 0, 95.0, "rounds=2", "x")))
    assert (pair.ours, small.ours, small.departs) == (None, -3.0, True)


@pytest.mark.parametrize(
    ("gains", "margin", "ours", "verdict"),
    [
        ((0.1, 0.2, 0.3), 0.5, 0.3, "confirmed"),
        ((-0.1, -0.2, -0.3), 0.5, 0.3, "confirmed"),  # whichever is better
        ((-0.1, 0.0, 0.1), 0.5, 0.5, "confirmed"),
        ((2.1, 2.2, 2.3), 0.5, -1.7, "contradicted"),
        ((-2.1, -2.2, -2.3), 0.5, -1.7, "contradicted"),
        ((-0.4, 0.0, 0.7), 0.5, 0.4, "undecided"),
        ((0.4, 0.6, 0.8), 0.5, -0.1, "undecided"),
        ((0.1,), 0.5, 0.4, "undecided"),
    ],
)
def test_a_finding_may_say_that_a_difference_is_small(
    gains: tuple[float, ...], margin: float, ours: float, verdict: str
) -> None:
    """Of three seeds, the mean difference is off by 2.48 times its deviation."""
    finding = {"text": "", "column": "method", "better": "fedexp", "worse": "fedavg", "within": margin}
    cells = {("0.1", "fedexp"): tuple(90 + gain for gain in gains), ("0.1", "fedavg"): (90.0,) * len(gains)}
    numbers = {keys: [Ours(dict(enumerate(own)), "")] for keys, own in cells.items()}
    whole = PaperTable(**{**vars(table_of("tiny", "table1")), "name": "all combinations are cells"})
    first, second = comparisons(whole, finding, numbers)
    (pair,) = next(several for several in (first, second) if several[0].ours is not None)
    assert pair.ours == pytest.approx(ours)
    assert pair.verdict == verdict


def test_a_number_may_be_of_another_tables_curve(papers: Path) -> None:
    """Without a run; its provenance is the run's, and cells that the table does not have are left out."""
    folder = papers / "tiny" / "ours"
    folder.mkdir()
    (folder / "figure1.csv").write_text(
        "method,seed,value,rounds,changes,config\nfedavg,0,3,4,rounds=4,x\nbad,0,3,4,rounds=4,y\n"
    )
    (folder / "figure1_curves.csv").write_text(
        "method,seed,changes,round,value\n"
        + "".join(f"fedavg,0,rounds=4,{r},{value}\n" for r, value in enumerate((90, 2, 5)))
        + "bad,0,rounds=4,0,1\n"
    )
    fields = vars(table_of("tiny", "figure1")) | {"name": "first", "curves": "figure1", "scale": 10.0}
    fields |= {
        "keys": {"method": {"fedavg": ""}},
        "measure": "baselines.reproduce.statistics.initial_mean",
    }
    rows = results.collect(PaperTable(**fields), [], "full", folder)
    assert rows.to_dict("records") == [
        {
            "method": "fedavg",
            "seed": "0",
            "value": "35",
            "rounds": "4",
            "changes": "rounds=4",
            "config": "x",
        }
    ]
    assert not (folder / "first_curves.csv").exists()
    again = results.collect(PaperTable(**fields), [], "full", folder)
    assert again.to_dict("records") == rows.to_dict("records")


def test_a_run_comes_before_its_thinned_curve(papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = vars(table_of("tiny", "figure1")) | {"curves": "figure1", "measure": "x"}
    table = PaperTable(**fields)
    (trial,) = plan(table, select(table, "method=fedavg"), (0,), "full", (), Path("out"))
    row = {"method": "fedavg", "seed": 0, "value": "1", "changes": ""}
    monkeypatch.setattr(results, "is_finished", lambda trial: True)
    monkeypatch.setattr(results, "_of_curves", lambda *_: [row | {"seed": "0", "value": "2"}])
    monkeypatch.setattr(results, "_row", lambda *_: row)
    assert results.collect(table, [trial], "full", papers).value.tolist() == ["1"]
