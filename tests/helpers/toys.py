"""Ray actors and grids for tests: what an answer does stands in its message."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from ray.exceptions import RaySystemError

from baselines.grids.ray import RayGrid
from baselines.grids.ray_pool import Workers
from helpers.checkout import ROOT

made: list[Workers] = []


class Toy:
    """Counts in the node's state, sleeps, or dies, as its message says.

    Parameters
    ----------
    lacks : what its machine lacks
    """

    def __init__(self, lacks: str | None = None) -> None:
        self.lack = lacks

    def do(self, method: str, *arguments: Any) -> Any:
        return getattr(self, method)(*arguments)

    def unfit(self) -> str | None:
        return self.lack

    def answer(self, requests: list[Message], contexts: list[Context]) -> list[tuple[Message, RecordDict]]:
        pairs = zip(requests, contexts, strict=True)
        return [self._answer(request, context, len(requests)) for request, context in pairs]

    def answer_folded(
        self, requests: list[Message], contexts: list[Context]
    ) -> tuple[list[tuple[Message, RecordDict]], list[int], ArrayRecord, dict[str, np.ndarray]]:
        """Fold all replies but that of a node that is told to send its own; the mean names whose it is."""
        answers = self.answer(requests, contexts)
        configs = [request.content.config_records["config"] for request in requests]
        folded = [k for k, config in enumerate(configs) if "alone" not in config]
        nodes = np.array([contexts[k].node_id for k in folded], dtype=np.int64)
        return answers, folded, ArrayRecord({"nodes": Array(nodes)}), {"nodes": nodes}

    def _answer(self, request: Message, context: Context, at_once: int) -> tuple[Message, RecordDict]:
        config = request.content.config_records["config"]
        if "dies" in config and _first(Path(str(config["dies"])), int(config.get("times", 1))):  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(config.get("seconds", 0)))  # type: ignore[arg-type]
        before = context.state.config_records.get("count", ConfigRecord({"n": 0}))
        context.state["count"] = ConfigRecord({"n": int(before["n"]) + 1})  # type: ignore[arg-type]
        answer = ConfigRecord(
            {"node": context.node_id, "pid": os.getpid(), "at_once": at_once, **context.state["count"]}
        )
        return Message(RecordDict({"said": answer}), reply_to=request), context.state

    def note(self, arguments: tuple[Any, ...], _: range) -> list[float]:
        match arguments:
            case ("sleeps", seconds):
                time.sleep(seconds)
            case ("raises",):
                raise ValueError("of this task")
            case ("breaks", folder, times) if _first(folder, times):
                raise RaySystemError(BrokenPipeError("of its machine"))
            case ("dies", folder, times) if _first(folder, times):
                os.kill(os.getpid(), signal.SIGKILL)
        return [time.monotonic()]


def _first(folder: Path, times: int) -> bool:
    """Say whether this is one of the first so many tries, across processes."""
    folder.mkdir(exist_ok=True)
    (folder / str(time.monotonic_ns())).touch()
    return len(list(folder.iterdir())) <= times


@contextmanager
def cluster(cpus: int, gpus: int = 0) -> Iterator[None]:
    """Start Ray on this machine, with as many processors as it is told that there are."""
    folder = str(ROOT / "tests")  # where the workers find the toys
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    ray.init("local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def grid(
    nodes: int,
    *,
    cpus: float = 1,
    gpus: float = 0,
    lacks: str | None = None,
    retries: int = 2,
    batched: bool = False,
    folded: bool = False,
) -> RayGrid:
    """Return a grid whose nodes are toys."""
    actor: Any = ray.remote(max_restarts=0)(Toy)
    workers = Workers(partial(_started, actor, lacks), cpus, gpus)
    made.append(workers)
    return RayGrid(ClientApp(), nodes, workers, retries, batched=batched, folded=folded)


def _started(actor: Any, lacks: str | None, **options: Any) -> Any:
    return actor.options(**options).remote(lacks)


def close() -> None:
    """End all grids' workers, so that the next grid has the processors."""
    while made:
        made.pop().close()


def messages(
    grid: RayGrid, configs: dict[int, dict[str, Any]] | None = None, kind: str = "train"
) -> list[Message]:
    """Return a message to each node, with what it is told."""
    return [
        Message(RecordDict({"config": ConfigRecord((configs or {}).get(k, {}))}), node, kind)
        for k, node in enumerate(grid.get_node_ids())
    ]


def node_counts(replies: list[Message]) -> list[tuple[int, int]]:
    """Return which nodes answered, ascending, each with how often it has."""
    records = [reply.content.config_records["said"] for reply in replies if reply.has_content()]
    return sorted((int(one["node"]), int(one["n"])) for one in records)  # type: ignore[arg-type]


def pid(reply: Message) -> int:
    """Return the process that answered."""
    return int(reply.content.config_records["said"]["pid"])  # type: ignore[arg-type]


def at_once(reply: Message) -> int:
    """Return with how many messages at once the reply's was answered."""
    return int(reply.content.config_records["said"]["at_once"])  # type: ignore[arg-type]
