"""python -m baselines.compare --html: one page, tried in a browser without a network."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from baselines import compare
from baselines.reports import html
from baselines.reports.curves import Drawing
from helpers.runs import write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DIGITS = "dataset=digits num_nodes=3 rounds=2"
AS_SWEEPS_NAME_IT = ",client.optimizer.momentum=0.9,partitioner.concentration=0.3,num_nodes=3,rounds=2"
SEEN = """
<script>
  const said = {errors, width: document.documentElement.scrollWidth};
  const column = () => [...document.querySelectorAll("table")][0].tBodies[0].rows;
  const first = () => [...column()].map((row) => row.cells[0].textContent);
  const click = (place) => document.querySelectorAll("table thead th button")[place].click();
  click(3); said.ascending = first();
  click(3); said.descending = first();
  click(0); said.by_name = first();
  const plot = document.querySelector(".js-plotly-plot");
  const shown = () => plot.querySelectorAll(".scatterlayer .trace").length;
  said.plots = document.querySelectorAll(".js-plotly-plot").length;
  said.lines = shown();
  const outside = (element) => {
    const box = element.getBoundingClientRect();
    return box.width && (box.left < 0 || box.right > window.innerWidth);
  };
  const seen = [...document.querySelectorAll("main :not(svg *)"), ...document.querySelectorAll("svg text")];
  said.clipped = seen.filter(outside).map((element) => element.outerHTML.slice(0, 200));
  const scrolls = (box) => box.scrollWidth > box.clientWidth;
  said.scrolled = [...document.querySelectorAll(".wide")].filter(scrolls).length;
  said.shares = document.querySelectorAll('[data-title^="Share"]').length;
  document.querySelectorAll(".names button")[1].click();
  setTimeout(() => {
    said.lines_left = shown();
    parent.postMessage(JSON.stringify(said), "*");
  }, 2000);
</script>
"""
FRAME = """
<pre id="said"></pre>
<script>
  window.onmessage = (event) => { document.getElementById("said").textContent = event.data; };
</script>
<iframe src="page.html" style="width:%dpx;height:900px;border:0"></iframe>
"""
WATCH = "<script>const errors = []; window.onerror = (message) => { errors.push(message); };</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a sweep of three settings, one run of which is damaged."""
    sweep = tmp_path_factory.mktemp("sweep")
    ends = {"fedavg": 0.9, "fedexp": 0.1, "fedadam": 0.5}
    for strategy, end in ends.items():
        for seed in (0, 1):
            overrides = f"{DIGITS} strategy={strategy} seed={seed}"
            run = sweep / f"{strategy}{seed}{AS_SWEEPS_NAME_IT}"
            write_run(run, overrides, seed, [0.1, end + seed / 50], "finished")
    (run / "metrics.csv").write_text("")  # the last one
    target = sweep / "page.html"
    assert compare.main([str(sweep), "--html", str(target), "--paired", "fedavg"]) == 0
    return target.read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_needs_nothing_else(page: str) -> None:
    for fetched in ("<link", "src=", "@import"):
        assert fetched not in page.replace(library(page), "")


def library(page: str) -> str:
    """Return Plotly's code, which is in the page."""
    return page.split("<script>", 1)[1].split("</script>", 1)[0]


def test_it_has_every_section(page: str) -> None:
    for title in ("Results", "Differences", "Curves", "Who holds what", "Settings", "Runs"):
        assert f"<h2>{title}</h2>" in page
    assert f"<li>fedadam1{AS_SWEEPS_NAME_IT}: metrics.csv is missing or empty" in page
    assert "5 runs of 3 settings" in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1600])
def test_a_browser_shows_sorts_and_toggles_it(page: str, width: int, tmp_path: Path) -> None:
    state = in_a_browser(page, width, tmp_path)
    assert state["errors"] == []
    assert state["width"] <= width
    assert state["clipped"] == []
    assert state["scrolled"] == 0
    assert state["shares"] == 0  # Plotly's button that sends a plot to its makers
    assert state["ascending"] == ["FedExP", "FedAdam", "FedAvg"]
    assert state["descending"] == ["FedAvg", "FedAdam", "FedExP"]
    assert state["by_name"] == ["FedAdam", "FedAvg", "FedExP"]
    assert state["plots"] == 2  # accuracy, and the one partition
    assert state["lines"] == 5  # three means; the band of two
    assert state["lines_left"] == 3  # without the one whose name was clicked, and its band


def in_a_browser(page: str, width: int, folder: Path) -> dict[str, Any]:
    """Return what a script finds in the page, in a frame so wide: a window has a least width."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    seen = page.replace("<head>", "<head>" + WATCH, 1).replace("</body>", SEEN + "</body>")
    (folder / "page.html").write_text(seen, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME % width)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"]
    command = [CHROMIUM, *flags, "--dump-dom", str(folder / "frame.html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    text = done.stdout.partition('<pre id="said">')[2].partition("</pre>")[0]
    state: dict[str, Any] = json.loads(unescape(text))
    return state


def test_hovers_say_the_round_and_shares_in_per_cent(page: str) -> None:
    assert '"unifiedhovertitle":{"text":"round %{x}"}' in page
    hover = r'"hovertemplate":"%{y:.1%} \u00b1 %{customdata[2]:.1%} (one standard deviation)"'
    assert hover in page
    assert '"showlegend":false' in page


@pytest.mark.parametrize(
    ("band", "hover", "values"),
    [
        ("std", "%{y:.4g} ± %{customdata[2]:.2g} (one standard deviation)", [2.0, 4.0, 2**0.5]),
        ("minmax", "%{y:.4g} (seeds from %{customdata[0]:.4g} to %{customdata[1]:.4g})", [2.0, 4.0]),
        ("ci", "%{y:.4g} (95 % interval %{customdata[0]:.4g} to %{customdata[1]:.4g})", [-9.706, 15.706]),
        ("none", "%{y:.4g}", []),
    ],
)
def test_a_hover_says_what_the_band_is(band: str, hover: str, values: list[float]) -> None:
    """Losses of 2 and 4: the mean is 3, the interval 12.706 standard errors to each side, which are 1."""
    rows = [
        {"setting": "a", "seed": seed, "run": str(seed), "round": 1, "split": "test", "model": "global"}
        | {"metric": "loss", "value": value}
        for seed, value in enumerate((2.0, 4.0))
    ]
    (figure,) = html.plot_curves(pd.DataFrame(rows), Drawing(("loss",), band=band)).values()
    (mean,) = (trace for trace in figure.data if trace.hovertemplate)
    assert mean.hovertemplate == hover
    low, high, deviation = mean.customdata[0]
    assert deviation == pytest.approx(2**0.5)
    if band in ("ci", "minmax"):
        assert [low, high] == pytest.approx(values, abs=1e-3)


def test_the_library_may_lie_beside_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run", DIGITS, 0, [0.1, 0.9], "finished")
    target = tmp_path / "pages" / "page.html"
    assert compare.main([str(tmp_path), "--html", str(target), "--html-assets"]) == 0
    assert '<script src="plotly.min.js"></script>' in target.read_text(encoding="utf-8")
    assert target.stat().st_size < 500_000 < (tmp_path / "pages" / "plotly.min.js").stat().st_size


def test_a_page_has_a_plot_by_each_axis(tmp_path: Path) -> None:
    write_run(tmp_path / "run", DIGITS, 0, [0.1, 0.9], "finished")
    with open(tmp_path / "run" / "metrics.csv", "a") as file:
        file.write("1,train,global,virtual_seconds,30.0\n")
    target = tmp_path / "page.html"
    axes = ["--x", "round", "--x", "virtual_seconds", "--metric", "accuracy"]
    assert compare.main([str(tmp_path), "--html", str(target), "--html-assets", *axes]) == 0
    (curves,) = re.findall(r"<h2>Curves</h2>(.*?)</section>", target.read_text(encoding="utf-8"), re.S)
    assert curves.count("<h3>test accuracy</h3>") == 2
    assert curves.index('"text":"round"') < curves.index('"text":"virtual time (s)"')


NODE = shutil.which("node") or shutil.which("nodejs")
NAMES = """
const pressed = {};
const button = (label) => ({
  dataset: {label}, on: {},
  addEventListener(name, act) { this.on[name] = act; },
  setAttribute(_, value) { pressed[label] = String(value); },
  getAttribute: () => pressed[label],
});
const buttons = ["FedAvg", "FedExP", "FedAdam"].map(button);
for (const one of buttons) pressed[one.dataset.label] = "true";
const trace = (legendgroup) => ({legendgroup, visible: true});
const plots = [[trace("FedAvg"), trace("FedAvg"), trace("FedExP")], [trace("FedExP"), trace("FedAdam")]];
const Plotly = {restyle: (plot, {visible}, places) => places.forEach((at) => { plot.data[at].visible = visible; })};
const found = {".names button": buttons, ".js-plotly-plot": plots.map((data) => ({data}))};
globalThis.document = {querySelectorAll: (selector) => found[selector] || []};
const shown = () => plots.map((data) => data.map((one) => Number(one.visible)).join("")).join(" ");
"""
PRESSES = """
const said = [];
const act = (place, name) => { buttons[place].on[name](); said.push(shown()); };
act(1, "click"); act(1, "click"); act(0, "dblclick"); act(0, "dblclick");
console.log(JSON.stringify(said));
"""


def test_a_name_hides_its_lines_in_all_plots(page: str) -> None:
    """And a double click all others, a second one none; a button is pressed by keys, too."""
    if NODE is None:
        pytest.skip("no Node.js here")
    assert page.count('<button type="button" aria-pressed="true" data-label=') == 3
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    done = subprocess.run(
        [NODE, "-e", NAMES + script + PRESSES], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == ["110 01", "111 11", "110 00", "111 11"]


def test_a_count_that_others_lack_is_a_count_in_the_settings(tmp_path: Path) -> None:
    rows = {"setting": ["a", "b"], "strategy.buffer_size": [5, None], "run": [str(tmp_path)] * 2}
    frame = pd.DataFrame(rows)
    assert re.findall(r"<td>(.*?)</td>", html.settings_section(frame)) == ["a", "5", "b", "-"]
