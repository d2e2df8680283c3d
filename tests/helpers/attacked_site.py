"""A site as an attacker meets it: messages to the deployed ClientApp, in process, and what comes back."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from baselines.apps import client_app
from baselines.experiment import experiment
from strategies.shared import protocol
from strategies.shared.flower_private import assign_message_id, become_server

AGES = (27.3, 30.73, 31.07, 44.9, 52.5, 61.25, 33.1, 38.4)
NAMES = ("Ada Lovelace", "Jean Bartik", "Grace Hopper", "Betty Holberton") * 2
SECRETS = [*map(str, AGES), *NAMES, "hunter2"]
FIELDS = {
    "classes": "[no,yes]",
    "shape": "[2]",
    "mean": "[0.0,0.0]",
    "std": "[1.0,1.0]",
    "dtype": "float32",
    "columns": "[bmi,glucose]",
    "label": "ill",
}
SETTINGS = "dataset=local model=softmax num_nodes=1 rounds=2 node_test_fraction=0.25 client.batch_size=4"


def with_schema(**changes: str) -> str:
    """Return the honest overrides with other fields of the schema, in Hydra's grammar."""
    schema = ",".join(f"{key}:{value}" for key, value in (FIELDS | changes).items())
    return shlex.join([*SETTINGS.split(), f"dataset.schema={{{schema}}}"])


HONEST = with_schema()


@dataclass
class Site:
    """A site with a table of patients, and its own file."""

    folder: Path
    run_id: int = 1

    def __post_init__(self) -> None:
        table = pd.DataFrame(
            {
                "patient_name": NAMES,
                "age": AGES,
                "bmi": range(20, 28),
                "glucose": range(90, 98),
                "ill": ["no", "yes"] * 4,
            }
        )
        table.to_csv(self.folder / "patients.csv", index=False)
        self.allow()

    @property
    def file(self) -> Path:
        return self.folder / "site.yaml"

    def allow(self, **keys: object) -> None:
        """Write the site's file anew."""
        known = {"data": "patients.csv", "columns": ["bmi", "glucose"], "label": "ill"} | keys
        self.file.write_text("".join(f"{key}: {value}\n" for key, value in known.items()))

    def ask(
        self,
        overrides: str,
        kind: str = "query",
        settings: Mapping[str, object] | None = None,
        node_config: Mapping[str, str] | None = None,
        arrays: ArrayRecord | None = None,
    ) -> Message:
        """Send the deployed ClientApp a message; return its reply."""
        become_server()
        own = {"site": "north", "site-file": str(self.file)} if node_config is None else dict(node_config)
        context = Context(self.run_id, 7, own, RecordDict(), {"overrides": overrides})
        place = {} if kind == "query" else {protocol.SERVER_ROUND: 1, protocol.PARTITION_ID: 0}
        config: dict[str, Any] = {**place, **(settings or {})}
        content = RecordDict({protocol.CONFIG: ConfigRecord(config)})
        if kind != "query":
            content[protocol.ARRAYS] = arrays or initial_arrays()
        message = Message(content, 7, kind)
        assign_message_id(message)
        return client_app(message, context)

    def refusal(self, *arguments: object, **more: object) -> str:
        """Return what the server is told where the site refuses; empty where it does not."""
        reply = self.ask(*arguments, **more)  # type: ignore[arg-type]
        if reply.has_error():
            return str(reply.error.reason)
        config = reply.content.get(protocol.CONFIG)
        return str(config.get(protocol.REFUSED, "")) if isinstance(config, ConfigRecord) else ""


def initial_arrays() -> ArrayRecord:
    """Return the model of the honest experiment before training."""
    return experiment.load(HONEST).initial_arrays()
