"""What a paper needs of compare: data sets side by side, names, order, bands, marks, captions."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from baselines import compare, results
from baselines.reports import comparison, curves
from baselines.reports.runs import Panel
from baselines.reports.statistics import adjust_holm
from baselines.reports.tables import Column
from helpers.runs import METRICS, write_run

ENDS = {
    "fedavg corrections=none": (0.50, 0.52, 0.51, 0.50),
    "fedexp corrections=none": (0.60, 0.63, 0.61, 0.62),
    "fedavg corrections=proximal": (0.51, 0.51, 0.52, 0.49),
}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Return a sweep over methods, one of them a correction, and data sets with a model each."""
    for data, model, less in (("digits", "mlp", 0.0), ("mnist", "lenet", 0.1)):
        for method, ends in ENDS.items():
            for seed, end in enumerate(ends):
                own = f"dataset={data} model={model} strategy={method} seed={seed}"
                folder = tmp_path / f"{data}{len(list(tmp_path.iterdir()))}"
                write_run(folder, own, seed, [0.1, end - less * (1 + ("exp" in method))], "finished")
    return tmp_path


def table_in(folder: Path) -> list[str]:
    return (folder / "comparison.md").read_text().splitlines()


def test_data_sets_stand_side_by_side_with_an_average_rank(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model, which only fits the data, is in no name; and neither is what --label takes away."""
    titles: list[tuple[str, int]] = []

    def save(figure: Figure, *_: object, **__: object) -> None:
        titles.extend((axis.get_title(), len(axis.lines)) for axis in figure.axes)

    monkeypatch.setattr(Figure, "savefig", save)
    assert compare.main([str(sweep), "--panels", "dataset", "--label", "corrections=none="]) == 0
    heading, _, *rows = table_in(sweep)
    assert heading == "| setting | seeds | rounds | digits | MNIST | average rank |"
    assert [row.split(" | ")[0] for row in rows] == [
        "| FedAvg",
        "| FedAvg, corrections=proximal",
        "| FedExP",
    ]
    assert [row.split(" | ")[-1] for row in rows] == ["2.50 |", "2.50 |", "1.00 |"]
    assert "61.5 ± 1.3 %" in rows[2]
    assert titles == [("digits", 3), ("MNIST", 3)]


def test_a_setting_that_lacks_a_panel_has_no_rank(sweep: Path) -> None:
    write_run(sweep / "alone", "dataset=digits model=mlp strategy=fedyogi", 0, [0.1, 0.9], "finished")
    assert compare.main([str(sweep), "--panels", "dataset", "--metric", "accuracy"]) == 0
    (row,) = (row for row in table_in(sweep) if "FedYogi" in row)
    assert row.endswith("| 90.0 % | - | - |")


def test_the_best_over_panels_has_the_best_average_rank(sweep: Path) -> None:
    """One that is far ahead in a panel, and in no other, is none of them; the baseline need not be one."""
    write_run(sweep / "alone", "dataset=digits model=mlp strategy=fedyogi", 0, [0.1, 0.99], "finished")
    wishes = ["--panels", "dataset", "--best", "1", "--paired", "fedavg"]
    assert compare.main([str(sweep), *wishes]) == 0
    row, end = table_in(sweep)[2:4]
    assert row.startswith("| FedExP, corrections=none |")
    assert not end
    pairs = [row for row in table_in(sweep)[6:] if row.startswith("| Fed")]
    assert all(" - FedAvg" in row for row in pairs)
    assert [row.split(" | ")[1] for row in pairs if row.startswith("| FedExP")] == ["digits", "MNIST"]


def test_the_best_over_panels_needs_a_setting_in_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {"digits": ("fedavg", "fedadam"), "mnist": ("fedexp", "fedyogi")}
    own = [(data, method) for data in methods for method in methods[data]]
    for number, (data, method) in enumerate(own):
        overrides = f"dataset={data} model=mlp strategy={method}"
        write_run(tmp_path / str(number), overrides, 0, [0.1, 0.9], "finished")
    assert compare.main([str(tmp_path), "--panels", "dataset", "--best", "1"]) == 2
    assert "--best with --panels: no setting has runs in every panel" in capsys.readouterr().err


def test_a_page_has_a_plot_for_each_panel(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = tmp_path_factory.mktemp("page") / "page.html"
    wishes = ["--panels", "dataset", "--metric", "accuracy", "--html", str(page), "--html-assets"]
    assert compare.main([str(sweep), *wishes, "--label", "corrections=none="]) == 0
    text = page.read_text()
    assert re.findall(r"<h3>(.*?)</h3>", text)[:2] == ["test accuracy, digits", "test accuracy, MNIST"]
    assert text.count('<div class="row">') == 1  # for the metric
    assert 'data-label="FedExP"' in text
    assert len(re.findall(r'data-label="', text)) == 3  # a name for all panels


def test_one_that_has_diverged_ranks_last() -> None:
    rows = [("a", 0.9, "diverged"), ("b", 0.1, "finished"), ("c", 0.2, "finished")]
    frame = pd.DataFrame(
        [(1, "test", "global", "accuracy", v, 0, name, name, how) for name, v, how in rows],
        columns=[*METRICS, "setting", "run", "status"],
    )
    ranks = comparison.average_rank([frame], Panel("test", "accuracy"), lower=False)
    assert dict(ranks) == {"a": 3, "b": 2, "c": 1}


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            ["--panels", "partitioner"],
            "the runs do not differ in it; they differ in dataset, model, strategy,",
        ),
        (["--ylim", "3", "2"], "--ylim 3 2: expected the lower end first"),
        (["--html-assets"], "--html-assets: there is no page; add --html PAGE"),
        (["--order", "fedyogi"], "--order fedyogi: no setting is called so; there are "),
        (["--names", "missing.yaml"], "--names missing.yaml cannot be read: "),
    ],
)
def test_such_a_wish_is_a_mistake(
    wish: list[str], message: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(sweep), *wish]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_one_setting_is_the_baseline_of_all_others_a_correction_too(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(sweep), "--panels", "dataset", "--latex", "--label", "corrections=none="]
    page = sweep / "page.html"
    arguments += ["--html", str(page), "--html-assets"]
    assert compare.main([*arguments, "--paired", "fedavg, corrections=none"]) == 0
    assert "<p>* differs from FedAvg: paired t-test, p &lt; 0.05" in page.read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert "* differs from FedAvg: paired t-test, p < 0.05 after Holm's correction for 4 comparisons" in out
    assert "in no pair" not in out
    pairs = [line for line in table_in(sweep) if " - FedAvg |" in line]
    assert [line.split(" | ")[:3] for line in pairs] == [
        ["| FedAvg, corrections=proximal - FedAvg", "digits", "4"],
        ["| FedExP - FedAvg", "digits", "4"],
        ["| FedAvg, corrections=proximal - FedAvg", "MNIST", "4"],
        ["| FedExP - FedAvg", "MNIST", "4"],
    ]
    (marked,) = (line for line in table_in(sweep) if line.startswith("| FedExP |"))
    assert marked.count(" * |") == 1  # on MNIST both lose alike
    tex = (sweep / "comparison.tex").read_text()
    assert r"\textbf{61.5 $\pm$ 1.3 \%}$^{*}$" in tex
    assert r"\label{tab:comparison-paired}" in tex
    assert r"\caption{Test accuracy: mean $\pm$ standard deviation over 4 seeds." in tex


def test_a_baseline_that_is_in_no_pair_is_named(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By an option there are two; the one with the correction has no partner."""
    assert compare.main([str(sweep), "--panels", "dataset", "--paired", "fedavg"]) == 0
    out = capsys.readouterr().out
    assert "digits: in no pair: FedAvg, corrections=proximal (it is a baseline itself; name one" in out


def test_names_from_a_file_and_the_order_of_rows(sweep: Path) -> None:
    """A name may be empty, and an order is asked for by a part of a name."""
    names = sweep / "names.yaml"
    names.write_text("corrections=none:\nfedavg, corrections=proximal: prox\n")
    arguments = ["--panels", "dataset", "--names", str(names)]
    assert compare.main([str(sweep), *arguments, "--order", "fedexp", "--order", "prox"]) == 0
    assert [row.split(" | ")[0] for row in table_in(sweep)[2:]] == ["| FedExP", "| prox", "| FedAvg"]


@pytest.mark.parametrize("content", ["- a\n", "a: {b: c}\n", "a: [\n"])
def test_a_file_without_names_is_a_mistake(
    content: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep / "names.yaml").write_text(content)
    assert compare.main([str(sweep), "--names", f"{sweep}/names.yaml"]) == 2
    assert capsys.readouterr().err.startswith(f"error: --names {sweep}/names.yaml")


@pytest.mark.parametrize(
    ("band", "low", "high", "message"),
    [
        ("std", 40 - 20, 40 + 20, "one standard deviation"),
        ("ci", 40 - 20 * 4.302653 / 3**0.5, 40 + 20 * 4.302653 / 3**0.5, "95 % confidence interval"),
        ("minmax", 20, 60, "lowest to the highest"),
        ("none", None, None, "Mean over 3 seeds."),
    ],
)
def test_bands(
    band: str,
    low: float | None,
    high: float | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 20, 40 and 60 %; t with two degrees of freedom is 4.303."""
    rows = [(1, "test", "global", "accuracy", value, seed) for seed, value in enumerate((0.2, 0.4, 0.6))]
    frame = pd.DataFrame(rows, columns=METRICS).assign(setting="all")
    monkeypatch.setattr(curves.plt, "close", lambda figure: None)
    drawing = curves.Drawing(band=band, limits=(0, 100))
    assert message in str(curves.draw(frame, tmp_path / "figure.png", drawing))
    (axis,) = curves.plt.gcf().axes
    assert axis.get_ylim() == (0, 100)
    if low is None:
        assert not axis.collections
    else:
        band_values = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (min(band_values), max(band_values)) == pytest.approx((low, high), rel=1e-5)
    monkeypatch.undo()
    curves.plt.close()


def test_a_paper_has_its_legend_above_and_what_bands_are_in_its_caption(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[bool, str]] = []

    def save(figure: Figure, *_: object, **__: object) -> None:
        figure.canvas.draw()
        (legend,) = figure.legends
        top = max(axis.get_tightbbox().y1 for axis in figure.axes)
        places.append((legend.get_window_extent().y0 >= top, legend.get_title().get_text()))

    monkeypatch.setattr(Figure, "savefig", save)
    assert compare.main([str(sweep), "--width", "page"]) == 0
    assert places == [(True, "")]
    sentence = "Mean over 4 seeds; bands: one standard deviation to each side.\n"
    assert (sweep / "comparison.txt").read_text() == sentence


def test_a_caption_names_metric_and_data(tmp_path: Path) -> None:
    for strategy in ("fedavg", "fedexp"):
        write_run(tmp_path / strategy, f"dataset=mnist strategy={strategy}", 0, [0.1, 0.9], "finished")
    assert compare.main([str(tmp_path), "--latex", "--figure", f"{tmp_path}/main.png"]) == 0
    tex = (tmp_path / "main.tex").read_text()
    assert r"\caption{Test accuracy on MNIST: of 1 seed. Bold: the best.}" in tex
    assert r"\label{tab:main}" in tex


def test_holms_correction() -> None:
    """By hand: 0.01 x 3, 0.02 x 2, then never less than the one before."""
    assert adjust_holm([0.02, 0.01, 0.03, np.nan]) == pytest.approx([0.04, 0.03, 0.04, np.nan], nan_ok=True)
    assert adjust_holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert len(adjust_holm([])) == 0


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.4, 0.5], "0.450 ± 0.071"),
        ([1234.0, 1250.0], "1242 ± 11"),
        ([5.0, 5.0], "5.00 ± 0.00"),
        ([0.4], "0.4"),
        ([0.0, 0.0], "0 ± 0"),
        ([float("nan"), 1.0], "nan ± nan"),
    ],
)
def test_mean_and_deviation_have_as_many_decimals(values: list[float], text: str) -> None:
    rows = pd.DataFrame({"setting": "a", "value": values})
    assert Column("last loss", rows).text("a") == text


def test_any_line_of_a_table_may_be_the_baseline_in_python(sweep: Path) -> None:
    frame = results.load(sweep)
    (label,) = (
        one for one in frame.setting.unique() if "digits" in one and "fedavg" in one and "none" in one
    )
    compared = results.paired(frame, "setting", label)
    assert len(compared) == 5
    assert set(compared.baseline) == {label}
    known = compared.dropna()
    assert len(known) == 4  # of the other the difference is the same for all seeds
    assert known.p_holm.min() == pytest.approx(4 * known.p.min())
