"""card: write a model card of a run in Markdown, from its folder.

Mitchell et al.: *Model Cards for Model Reporting*, FAT* 2019. Every number comes from config.yaml,
environment.json, metrics.csv or the model's file; anything else is marked to be filled in.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from baselines.engine import environment, saved_model
from baselines.engine.environment import write_atomically
from baselines.engine.metrics import GLOBAL_MODEL, SITE_TEST
from baselines.errors import UserError
from baselines.experiment.config import leaves
from baselines.site.policy import read_leniently
from baselines.site.record import AUDIT_FILE, SiteRecord

FILL_IN = "**[to be filled in]**"
NEUTRAL_OPTIONS = ("none", "null", "identity")  # options that change nothing
METHOD_SETTINGS = [  # the groups of conf/ that decide how the model is trained
    *("strategy", "weighting", "server_optimizer", "mask", "step_size", "aggregation", "compression"),
    *("corrections", "personal", "private", "client_optimizer", "client"),
]
EVALUATION_SPLITS = (SITE_TEST, "node-test", "test")  # the splits of evaluations
SETTINGS = {  # dotted key in config.yaml: its name in the card
    "num_nodes": "nodes",
    "nodes_per_round": "nodes asked in a round",
    "client.local_epochs": "local epochs",
    "client.local_steps": "local steps",
    "client.batch_size": "batch size",
    "client.optimizer.lr": "learning rate of the nodes",
    "seed": "seed",
}
Row = Sequence[object]


def write(run: Path, out: Path | None) -> None:
    """Write the card of a run, or print it if ``out`` is None.

    Raises
    ------
    UserError : for a folder without a run, or whose files have changed since
    """
    text = "\n".join(_lines(run))
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)
        print(f"written: {out}; fill in what is marked {FILL_IN}")


def _lines(run: Path) -> Iterable[str]:
    """Return the card, line by line."""
    if (damage := environment.find_damage(run)) is not None:
        raise UserError(f"{run}: {damage}: a card needs the files as the run wrote them")
    about, rows = environment.read_environment(run), pd.read_csv(run / "metrics.csv")
    try:
        config = leaves(yaml.safe_load((run / "config.yaml").read_text()))
    except (OSError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f"{run / 'config.yaml'} cannot be read ({error})") from error
    models = saved_model.descriptions(run)
    saved_rounds = {int(model["round"]) for model in models.values() if "round" in model}
    server_round = max(saved_rounds, default=int(rows["round"].max()))
    measured = rows[rows["round"] == server_round]
    yield from _details(run, about, config, models, server_round)
    yield from _intended()
    yield from _factors(models)
    yield from _metrics(measured)
    yield from _evaluation(config, measured)
    yield from _training(about, config, models)
    yield from _results(measured, server_round)
    yield from _ethics(about, config, rows, server_round)
    yield from _caveats(about, models, rows)


def _details(
    run: Path,
    about: dict[str, Any],
    config: dict[str, Any],
    models: dict[str, dict[str, Any]],
    server_round: int,
) -> Iterable[str]:
    choices = about.get("choices") or {}
    yield f"# Model card: {_cell(run.resolve().name)}\n"
    yield "## Model details\n"
    facts: list[Row] = [("developed by", FILL_IN), ("licence", FILL_IN), ("contact", FILL_IN)]
    for name, model in models.items():
        facts.append(_model_fact(name, model))
    if not models:
        facts.append(("model", "the run has kept no model file"))
    facts.append(("model of round", f"{server_round} of {config.get('rounds')}"))
    facts += [
        (group, choices[group])
        for group in METHOD_SETTINGS
        if choices.get(group, "none") not in NEUTRAL_OPTIONS
    ]
    facts += [(name, config[key]) for key, name in SETTINGS.items() if config.get(key) is not None]
    keys = ("identity", "setting", "git_commit", "source_hash", "run_id", "app_hash", "started", "status")
    facts += [(key.replace("_", " "), about[key]) for key in keys if about.get(key) is not None]
    versions = about.get("versions") or {}
    facts.append(("versions", ", ".join(f"{package} {one}" for package, one in versions.items() if one)))
    yield from _table(("", ""), facts)


def _model_fact(name: str, model: dict[str, Any]) -> Row:
    network = model.get("network") or {}
    kind = str((network.get("config") or {}).get("_target_", "unknown class"))
    takes = f", takes {network['input_shape']}" if "input_shape" in network else ""
    return (f"model {name}", f"{kind}, {model['size']:,} numbers{takes}")


def _intended() -> Iterable[str]:
    yield "## Intended use\n"
    yield f"* Primary uses: {FILL_IN}"
    yield f"* Primary users: {FILL_IN}"
    yield f"* Uses that are out of scope: {FILL_IN}\n"


def _factors(models: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Write the model's inputs and classes, if there is a schema; leave groups of people to be filled in."""
    yield "## Factors\n"
    yield f"* Groups, instruments and environments that matter: {FILL_IN}\n"
    schema = next((model["schema"] for model in models.values() if "schema" in model), None)
    if schema is None:
        return
    yield f"Classes: {', '.join(map(_cell, schema['classes']))}.\n"
    if (columns := schema.get("columns")) is None:
        yield f"Inputs: {schema['dtype']} of shape {schema['shape']}.\n"
        return
    units = schema.get("units") or [""] * len(columns)
    yield f"Columns, in order; the label is {_cell(schema['label'])}:\n"
    rows = zip(columns, units, schema["mean"], schema["std"], strict=True)
    yield from _table(("column", "unit", "mean", "deviation"), rows)


def _metrics(measured: pd.DataFrame) -> Iterable[str]:
    yield "## Metrics\n"
    metrics = measured[measured.split.isin(EVALUATION_SPLITS)].metric
    names = {re.sub(r"_(lowest|median|highest)$", "", name) for name in metrics} - {"num_examples"}
    yield f"Measured: {', '.join(sorted(names)) or 'nothing'}.\n"
    yield f"* Why these, and decision thresholds: {FILL_IN}\n"


def _evaluation(config: dict[str, Any], measured: pd.DataFrame) -> Iterable[str]:
    yield "## Evaluation data\n"
    share = config.get("node_test_fraction")
    if (measured.split == SITE_TEST).any() or (measured.split == "node-test").any():
        yield f"* Each node held out {share} of its own data, which no training saw."
    if (measured.split == "test").any():
        yield "* The server evaluated on the test set of the data set."
    yield f"* Where the data come from, and whom they represent: {FILL_IN}\n"


def _training(
    about: dict[str, Any], config: dict[str, Any], models: dict[str, dict[str, Any]]
) -> Iterable[str]:
    yield "## Training data\n"
    choices, contributions = about.get("choices") or {}, about.get("contributions") or {}
    yield f"Data set: {_cell(choices.get('dataset', 'unknown'))}, {config.get('num_nodes')} nodes.\n"
    if contributions:
        local = choices.get("privacy") == "local"
        rows = [
            (site, "not told" if local else one["examples"], one["updates"], one["left_out"])
            for site, one in contributions.items()
        ]
        yield from _table(("site", "examples", "updates that counted", "left out"), rows)
    yield f"* How the data were collected, and by whose consent: {FILL_IN}\n"


def _results(measured: pd.DataFrame, server_round: int) -> Iterable[str]:
    yield "## Quantitative analyses\n"
    yield f"After round {server_round}.\n"
    for split, heading in ((SITE_TEST, "site"), ("node-test", "all nodes"), ("test", "test set, model")):
        part = measured[measured.split == split]
        if part.empty:
            continue
        names = list(dict.fromkeys(part.metric))
        values = dict(zip(zip(part.model, part.metric, strict=True), part.value, strict=True))
        rows = [
            (model, *(_number(values.get((model, name))) for name in names))
            for model in dict.fromkeys(part.model)
        ]
        yield from _table((heading, *names), rows)
    if not measured.split.isin([SITE_TEST, "node-test", "test"]).any():
        yield "Nobody has evaluated the model of this round.\n"
    yield f"* Differences between groups of people: {FILL_IN}\n"


def _ethics(
    about: dict[str, Any], config: dict[str, Any], rows: pd.DataFrame, server_round: int
) -> Iterable[str]:
    yield "## Ethical considerations\n"
    privacy = (about.get("choices") or {}).get("privacy", "none")
    spent = rows[(rows.metric == "epsilon") & (rows.model == GLOBAL_MODEL)]
    for_model = spent[spent["round"] <= server_round]
    if len(for_model):
        epsilon, total = (_number(part.value.iloc[-1]) for part in (for_model, spent))
        yield (
            f"* Privacy: {privacy}, of a node's whole data: epsilon {epsilon} for this model and {total} "
            f"for the whole run, at delta {config.get('privacy.delta')}."
        )
    else:
        yield f"* Privacy: {privacy}; no epsilon was recorded."
    yield f"* Risks and harms, and what was done about them: {FILL_IN}\n"


def _caveats(about: dict[str, Any], models: dict[str, dict[str, Any]], rows: pd.DataFrame) -> Iterable[str]:
    yield "## Caveats and recommendations\n"
    if about["status"] not in environment.ENDED_STATUSES:
        yield f"* The run has not finished: {_cell(about['status'])}."
    if about.get("over"):
        yield f"* The run ended before its last round: {_cell(about['over'])}."
    if about["status"] == environment.DIVERGED:
        yield "* The run has diverged: its last evaluations are not finite."
    elif not rows[rows.split.isin(EVALUATION_SPLITS)].value.map(math.isfinite).all():
        yield "* Some evaluations are not finite: the run has diverged, for a time or in the end."
    if models:
        yield "* The network takes normalised inputs: `python -m baselines.predict` takes raw ones."
    yield f"* Known limits, and how to use the model with care: {FILL_IN}\n"


def _table(heading: Row, rows: Iterable[Row]) -> Iterable[str]:
    yield f"| {' | '.join(map(_cell, heading))} |"
    yield f"| {' | '.join('---' for _ in heading)} |"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


def _cell(value: object) -> str:
    """Return a value as a table's cell, with Markdown escaped, as names come from files."""
    text = " ".join(str(value).split())
    return text if text == FILL_IN else text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


# audit: print a site's audit log, the requests to it and what left it, as a table.


COLUMNS = ("time", "run", "asked", "round", "experiment", "rows", "bytes", "norm", "epsilon", "refused")


def show_audit(site_file: Path, last: int) -> None:
    """Print the last lines of a site's audit log, and the epsilon spent of its budget.

    Raises
    ------
    UserError : if there is no log or it is damaged; for a damaged site file, after the log is printed
    """
    policy, damage = read_leniently(site_file)
    path = policy.state_folder / AUDIT_FILE
    if damage and not path.exists():
        raise damage
    entries = _entries(path)
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for entry in entries[-last:]:
        table.add_row(*(_text(entry.get(column)) for column in COLUMNS))
    width = None if os.isatty(1) else 200
    console = Console(width=width, highlight=False, markup=False)
    console.print(table)
    runs = len({entry.get("run") for entry in entries})
    console.print(f"{len(entries)} messages of {runs} runs in {path}")
    if damage:
        raise damage
    limit = "" if policy.max_epsilon is None else f" of {policy.max_epsilon:g}"
    console.print(f"epsilon spent: {SiteRecord(policy).epsilon():.4g}{limit}, at delta={policy.delta:g}")


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): no message has come yet?") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
