"""What a site's own file decides, against whoever submits, and what leaves the site where it refuses."""

import json
import logging
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array

from baselines.datasets import cache
from baselines.datasets.local import SiteData
from baselines.experiment import experiment
from baselines.federation.__main__ import main
from baselines.site.policy import read
from baselines.site.record import SiteRecord
from helpers.attacked_site import HONEST, SECRETS, Site, initial_arrays, with_schema
from strategies.parts.privacy import epsilon
from strategies.shared import protocol

PROMISED = {protocol.PRIVACY: "local", protocol.PRIVACY_NOISE: 1.0, protocol.PRIVACY_CLIP: 1.0}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def audited(site: Site) -> list[dict[str, object]]:
    text = (site.folder / "state" / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_an_honest_experiment_is_carried_out_and_written_down(site: Site) -> None:
    assert site.refusal(HONEST) == ""
    reply = site.ask(HONEST, "train")
    assert reply.content["metrics"]["num-examples"] == 6
    requests, trained = audited(site)
    assert (requests["asked"], trained["asked"]) == ("query", "train")
    assert trained["rows"] == 6
    assert trained["bytes"] > 0
    assert trained["norm"] > 0
    assert trained["experiment"]
    assert "refused" not in trained


READ_ELSEWHERE = [  # of a table, what the site's file does not name
    with_schema(label="age"),
    with_schema(label="patient_name"),
    with_schema(columns="[bmi,age]"),
    with_schema(columns="[patient_name,age]"),
    with_schema(columns="[bmi]", shape="[1]", mean="[0.0]", std="[1.0]", label="glucose"),
    with_schema(columns="['27.3','no']"),
    with_schema(label="''"),
    with_schema(label="'ill '"),
]


@pytest.mark.parametrize("overrides", READ_ELSEWHERE)
@pytest.mark.parametrize("privacy", [None, "local"])
def test_no_other_column_is_read(
    overrides: str, privacy: str | None, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.allow(privacy=privacy or "null")
    monkeypatch.setattr(SiteData, "__call__", lambda *_: pytest.fail("the data were read"))
    message = site.refusal(overrides, settings=PROMISED if privacy else {})
    assert message in ("refused by the site's file: columns", "refused by the site's file: label")


UNFIT = [  # allowed columns that do not fit the data
    with_schema(classes="[a,b]"),
    with_schema(classes="['27.3','30.73']"),
]


@pytest.mark.parametrize("overrides", UNFIT)
def test_what_leaves_a_site_is_no_value_name_or_path(
    overrides: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "flwr"):
        message = site.refusal(overrides)
    assert message
    assert not [
        secret for secret in [*SECRETS, str(site.folder), "Error", "Traceback"] if secret in message
    ]
    logged = [record.getMessage() for record in caplog.records]
    assert any("refused here: " in line and message in line for line in logged)
    assert audited(site)[-1]["refused"]


@pytest.mark.parametrize("gone", ["patients.csv", "columns", "heading", "text"])
def test_data_that_change_during_a_run_end_it_with_a_code(gone: str, site: Site) -> None:
    assert site.refusal(HONEST) == ""
    data = site.folder / "patients.csv"
    if gone == "patients.csv":
        data.unlink()
    elif gone == "columns":
        data.write_text("patient_name,age,ill\nAda Lovelace,27.3,no\n")
    elif gone == "heading":
        data.write_text("Ada Lovelace,27.3,20,90,no\nJean Bartik,30.73,21,91,yes\n")
    else:
        data.write_text("bmi,glucose,ill\nhunter2,90,no\n21,91,yes\n")
    site.run_id += 1  # its prepared data are another run's
    experiment.load.cache_clear()  # each message to a SuperNode starts a process
    message = site.refusal(HONEST, "train")
    assert message
    assert not [text for text in [*SECRETS, str(site.folder), "patients", "Error"] if text in message]


@pytest.mark.parametrize(
    ("allowed", "overrides", "key"),
    [
        ({"strategies": ["fedavg"]}, f"{HONEST} strategy=fedprox", "strategies"),
        ({"strategies": ["fed*"]}, f"{HONEST} strategy=scaffold", "strategies"),
        (
            {"strategies": ["fedavg"]},
            f"{HONEST} strategy._target_=strategies.FedExP step_size=extrapolated",
            "strategies",
        ),
        ({"experiments": ["gma/*"]}, HONEST, "experiments"),
        ({"max_rounds": 1}, HONEST, "max_rounds"),
        ({"max_runs_per_day": 0}, HONEST, "max_runs_per_day"),
        ({"min_rows": 9}, HONEST, "min_rows"),
        ({"columns": "null"}, HONEST, "columns"),
        ({"max_epsilon": 1}, HONEST, "privacy"),
        ({"privacy": "central"}, HONEST, "privacy"),
        ({"min_noise": 2}, HONEST, "privacy"),
        ({}, "dataset=digits model=softmax", "data"),
        ({}, "dataset=synthetic model=linear", "data"),
        ({"delta": 2}, HONEST, "delta"),
        ({"max_rounds": "-1"}, HONEST, "max_rounds"),
        ({"max_rounds": "many"}, HONEST, "max_rounds"),
        ({"unheard_of": 1}, HONEST, "it has an unknown key"),
        ({"data": "[1"}, HONEST, "it cannot be read"),
    ],
)
def test_a_refusal_names_the_key_and_no_value(
    allowed: dict[str, object], overrides: str, key: str, site: Site
) -> None:
    site.allow(**allowed)
    expected = "refused by the site: privacy" if key == "privacy" else f"refused by the site's file: {key}"
    assert site.refusal(overrides) == expected
    assert site.refusal(overrides, "train") == expected


def test_a_site_that_tests_no_models_answers_no_evaluation(site: Site) -> None:
    assert not site.ask(HONEST, "evaluate").has_error()
    site.allow(evaluate="false")
    assert site.refusal(HONEST, "evaluate") == "refused by the site's file: evaluate"


def test_rounds_are_counted_whatever_the_server_says(site: Site) -> None:
    site.allow(max_rounds=2)
    for _ in range(2):
        assert site.refusal(HONEST, "train", {protocol.SERVER_ROUND: 1}) == ""
    assert site.refusal(HONEST, "train", {protocol.SERVER_ROUND: 1}).endswith("max_rounds")
    for _ in range(3):  # one more than rounds: before the first
        assert site.refusal(HONEST, "evaluate") == ""
    assert site.refusal(HONEST, "evaluate").endswith("max_rounds")


def test_runs_of_a_day_are_counted_over_restarts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.allow(max_runs_per_day=2)
    for site.run_id in (1, 2, 2, 1):
        assert site.refusal(HONEST) == ""
    site.run_id = 3
    assert site.refusal(HONEST).endswith("max_runs_per_day")
    assert site.refusal(HONEST, "train").endswith("max_runs_per_day")  # without having asked
    now = time.time()
    monkeypatch.setattr("baselines.site.record.time.time", lambda: now + 24 * 3600 + 1)
    assert site.refusal(HONEST) == ""


def test_epsilon_is_counted_over_runs_and_noise(site: Site) -> None:
    """Two rounds at noise 4 and one at 2 are one at 1 / sqrt(2/16 + 1/4)."""
    site.allow(privacy="local", max_epsilon=4)
    record = SiteRecord(read(site.file))
    loud, low = PROMISED | {protocol.PRIVACY_NOISE: 4.0}, PROMISED | {protocol.PRIVACY_NOISE: 2.0}
    record.charge(1, "train", loud)
    record.charge(1, "train", loud)
    record.charge(2, "train", low)
    assert SiteRecord(read(site.file)).epsilon() == pytest.approx(
        epsilon((2 / 16 + 1 / 4) ** -0.5, 1, 1e-5)
    )
    before = record.epsilon()
    for run, noise in ((3, 0.1), (4, 1e-9)):
        config = PROMISED | {protocol.PRIVACY_NOISE: noise}
        with pytest.raises(Exception, match="max_epsilon"):
            record.charge(run, "train", config)
    assert record.epsilon() == before  # what was refused is not spent


def test_what_a_site_keeps_is_its_users_alone_and_is_gone_with_the_run(site: Site) -> None:
    assert site.refusal(HONEST) == ""
    kept = site.folder / "state"
    assert list((kept / "prepared" / "1").iterdir())
    for path in kept.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert not site.ask(HONEST, "train", {protocol.SERVER_ROUND: 2}).has_error()  # the last round
    assert not (kept / "prepared" / "1").exists()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home in which nothing is."""
    home = tmp_path_factory.mktemp("home")
    for variable in ("XDG_CACHE_HOME", "FLORILEGIUM_DATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(home))
    experiment.load.cache_clear()
    return home


@pytest.mark.parametrize("place", ["--data", "--site-file"])
def test_check_leaves_nothing_of_a_sites_rows(place: str, site: Site, home: Path) -> None:
    path = site.folder / "patients.csv" if place == "--data" else site.file
    before = set(site.folder.rglob("*"))
    assert main(["check", place, str(path), *HONEST.replace("'", "").split(" ")]) == 0
    assert not list(home.rglob("*.npz"))
    assert set(site.folder.rglob("*")) == before


@pytest.mark.parametrize("is_full", [False, True])
def test_a_sites_rows_lie_in_its_state_or_nowhere(
    is_full: bool, site: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = cache._write

    def full(file: Path, *more: Any) -> None:
        if file.is_relative_to(site.folder):
            raise OSError(28, "No space left on device")
        write(file, *more)

    if is_full:
        monkeypatch.setattr(cache, "_write", full)
    assert not site.ask(HONEST, "train").has_error()
    assert not list(home.rglob("*.npz"))
    assert len(list((site.folder / "state" / "prepared").rglob("*.npz"))) == (not is_full)


def test_damaged_budgets_are_no_new_budgets(site: Site) -> None:
    assert site.refusal(HONEST) == ""
    (site.folder / "state" / "budget.json").write_text("{}")
    assert site.refusal(HONEST) == "refused by the site's file: state"


def test_a_site_with_a_table_and_no_file_reads_none_of_it(site: Site) -> None:
    own = {"site": "north", "data": str(site.folder / "patients.csv")}
    assert site.refusal(HONEST, node_config=own) == "refused by the site's file: columns"


def test_audit_shows_what_was_asked_and_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.ask(HONEST)
    site.ask(HONEST, "train")
    site.ask(with_schema(label="age"))
    assert main(["audit", str(site.file)]) == 0
    printed = capsys.readouterr().out
    assert "3 messages of 1 runs" in printed
    assert "label: the schema has label=age" in printed


@pytest.mark.parametrize("experiments", ["[null]", "['null']", "[~, gma/*]", "\n- null"])
def test_null_is_an_experiment_that_no_file_states(experiments: str, site: Site) -> None:
    site.allow(experiments=experiments)
    assert site.refusal(HONEST) == ""
    other = site.refusal(f"{HONEST} experiment=gma/figure3_1")
    assert (other == "refused by the site's file: experiments") == ("gma" not in experiments)


DAMAGED = [{"experiments": "[1]"}, {"min_rows": "many"}, {"unheard_of": 1}, {"data": "[1"}]


@pytest.mark.parametrize("allowed", DAMAGED)
def test_a_damaged_file_is_said_before_a_message_comes_and_in_the_log(
    allowed: dict[str, object], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    look = ["check", "--site-file", str(site.file)]
    site.allow(state="kept")
    assert main(look) == 0
    assert f"in order, reads {site.folder / 'patients.csv'}\n" in capsys.readouterr().out
    site.allow(**{"state": "kept", **allowed})
    assert main(look) == 2
    (damage,) = capsys.readouterr().err.splitlines()
    message = site.refusal(HONEST)
    assert message.startswith("refused by the site's file: ")
    assert main(["audit", str(site.file)]) == 2
    out, err = capsys.readouterr()
    assert "1 messages of 1 runs" in out
    assert err == f"{damage}\n"
    folder = "state" if "data" in allowed else "kept"  # that is no YAML at all
    (line,) = (site.folder / folder / "audit.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert f"error: {entry['refused']}" == damage
    assert entry["epsilon"] is None


def test_check_says_what_the_server_would_be_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = with_schema(label="age").replace("'", "").split(" ")
    assert main(["check", "--site-file", str(site.file), *overrides]) == 2
    line, public = capsys.readouterr().err.splitlines()
    assert "label=age" in line
    assert public == "the server sees: refused by the site's file: label"
    assert main(["check", "--site-file", str(site.file), *HONEST.replace("'", "").split(" ")]) == 0
    assert "this leaves the site after each training" in capsys.readouterr().out


def test_a_model_without_a_norm_does_not_switch_off_the_clip(site: Site) -> None:
    """-inf - -inf is NaN, and min(1, C / NaN) is 1: the update would leave as it is."""
    site.allow(privacy="local", min_noise=1.0)
    arrays = initial_arrays()
    name = next(iter(arrays))
    values = arrays[name].numpy().copy()
    values.flat[0] = -np.inf
    arrays[name] = Array(values)
    reply = site.ask(HONEST, "train", PROMISED | {protocol.PRIVACY_CLIP: 1e-9}, arrays=arrays)
    assert reply.has_error()
    assert site.refusal(HONEST, "train", PROMISED | {protocol.PRIVACY_CLIP: 1e-9}) == ""


@pytest.mark.parametrize("noise", [1, True, 1e-200, 1e200, "1.0", 0.0])
def test_no_noise_passes_uncounted(noise: object, site: Site) -> None:
    site.allow(max_epsilon=0.001)
    config = {protocol.PRIVACY: "central", protocol.PRIVACY_NOISE: noise}
    assert site.refusal(HONEST, "train", config) in (
        "refused by the site: privacy",
        "refused by the site's file: max_epsilon",
    )
    site.allow()
    site.ask(HONEST, "train", config)
    assert site.refusal(HONEST, "train") == ""  # nothing that was stored disables the site
    assert audited(site)


def test_evaluations_are_refused_where_epsilon_is_counted(site: Site) -> None:
    site.allow(max_epsilon=10)
    assert site.refusal(HONEST, "evaluate") == "refused by the site's file: evaluate"


def test_a_message_asks_for_no_more_than_its_strategy(site: Site) -> None:
    for key in (protocol.GRADIENT_VARIANCE, protocol.START_LOSS, protocol.PROXIMAL_MU):
        assert site.refusal(HONEST, "train", {key: 1.0}) == "refused by the site's file: strategies"
    assert site.refusal(f"{HONEST} strategy=fedprox", "train", {protocol.PROXIMAL_MU: 1.0}) == ""


ASKING = f"{HONEST} strategy=power_of_choice strategy.asks=true"
QUESTION = {protocol.MEASURES: ["start-loss"]}


def test_a_question_before_a_round_is_answered_counted_and_written_down(site: Site) -> None:
    reply = site.ask(ASKING, protocol.QUESTION, QUESTION)
    assert dict(reply.content["metrics"]).keys() == {"start-loss", "num-examples", "partition-id"}
    site.allow(evaluate="false")  # which is about the rows that are held out
    assert site.refusal(ASKING, protocol.QUESTION, QUESTION) == ""
    site.allow(max_rounds=2)
    assert site.refusal(ASKING, protocol.QUESTION, QUESTION) == "refused by the site's file: max_rounds"
    assert site.refusal(ASKING, "train") == ""  # rounds are counted apart
    first, *_ = audited(site)
    assert (first["asked"], first["round"], first["rows"], first["bytes"]) == (protocol.QUESTION, 1, 6, 0)


@pytest.mark.parametrize(
    "demanded", [{"privacy": "central"}, {"privacy": "local"}, {"min_noise": 0}, {"max_epsilon": 9}]
)
def test_a_site_that_demands_privacy_answers_no_question(demanded: dict[str, object], site: Site) -> None:
    site.allow(**demanded)
    promised = {**QUESTION, **PROMISED, protocol.PRIVACY_NOISE: 99.0}
    assert site.refusal(ASKING, protocol.QUESTION, promised) == "refused by the site: privacy"


def test_a_question_is_the_strategys_and_on_enough_rows(site: Site) -> None:
    by_rows = f"{ASKING} strategy.loss_examples=2"
    for overrides, question in (
        (HONEST, QUESTION),
        (HONEST, {}),
        (ASKING, {protocol.MEASURES: ["accuracy"]}),
        (ASKING, {**QUESTION, protocol.MEASURED_EXAMPLES: 1}),
        (by_rows, QUESTION),
    ):
        assert (
            site.refusal(overrides, protocol.QUESTION, question) == "refused by the site's file: strategies"
        )
    some = {**QUESTION, protocol.MEASURED_EXAMPLES: 2}
    assert site.refusal(by_rows, protocol.QUESTION, some) == ""
    site.allow(min_rows=3)
    assert site.refusal(by_rows, protocol.QUESTION, some) == "refused by the site's file: min_rows"


def test_a_full_disk_of_the_log_lets_nothing_leave(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("baselines.site.record._Log.flush", full)
    assert site.ask(HONEST, "train").has_error()


def test_a_message_cannot_fill_the_log(site: Site) -> None:
    site.ask("x" * 3_000_000)
    assert (site.folder / "state" / "audit.jsonl").stat().st_size < 20_000


def test_a_private_site_tells_no_count(site: Site) -> None:
    site.allow(privacy="local")
    message = site.refusal(with_schema(classes="[a,b]"), settings=PROMISED)
    assert message == "schema: some labels are not in the schema"
