"""What runs in a Ray worker: it answers messages, whichever node they are for.

A message travels with its node's context, and the context's state comes back with the reply: a worker
keeps nothing that another could not take over.
"""

import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from torch import Tensor

from baselines.apps import client_app_of, together_of
from baselines.engine.environment import ResourceUsage
from baselines.engine.evaluation import kept
from baselines.engine.loggers import set_log_colors
from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.data import Dealt
from baselines.experiment.experiment import Experiment
from baselines.experiment.experiment import load as load_experiment
from baselines.experiment.identity import source_hash
from baselines.grids.inline import MessageHandler
from baselines.grids.ray import Buffered, buffered
from clients.evaluation import Sums, batch_sums, correct
from clients.round import get_record, load
from strategies.core.replies import folding_of
from strategies.shared import protocol


class Worker:
    """Answers for the nodes of one experiment.

    Parameters
    ----------
    overrides : name the experiment
    configuration : its composed YAML, so that no folder with options need be on this machine
    versions : the driver's, as :func:`versions` gives them
    batched : whether nodes whose messages come at once train batched
    dealt : who holds which rows, as the driver has worked it out
    """

    def __init__(
        self, overrides: str, configuration: str, versions: dict[str, str], batched: bool, dealt: Dealt
    ) -> None:
        set_log_colors()
        config.take(overrides, configuration)
        self.overrides, self.expected, self.dealt = overrides, versions, dealt
        self.answering = MessageHandler(
            client_app_of(overrides), together_of(overrides) if batched else None
        )

    def unfit(self) -> str | None:
        """Prepare for messages; return what this machine lacks, None where it can answer."""
        ours = versions()
        for what, expected in self.expected.items():
            if ours[what] != expected:
                return f"{what} {ours[what]} there, {expected} here: install the same on every machine"
        try:
            torch.set_num_threads(self._experiment.settings.threads)
            _ = self._experiment.training, self._experiment.known_compressions
            _ = self._experiment.node_model
            self._used = ResourceUsage(self._experiment.device)
            self._experiment.node_data.set_partition(self.dealt)
        except UserError as error:  # a device or a data set that is not there
            return str(error)
        return None

    def used(self) -> dict[str, Any]:
        """Return how the steps of this process were taken, and its accelerator's peak memory."""
        return self._used.describe()

    def answer(self, requests: list[Message], contexts: list[Context]) -> list[tuple[Message, RecordDict]]:
        """Return each node's reply, and its state after it."""
        return _travelling(self.answering(requests, contexts), contexts)

    def answer_folded(
        self, requests: list[Message], contexts: list[Context]
    ) -> tuple[list[tuple[Message, RecordDict]], list[int], ArrayRecord | None, dict[str, np.ndarray]]:
        """Return replies and states, the positions of replies without their models, these' mean and sums.

        A reply that the server would leave out of the round is none of them. Nodes that are not batched
        are folded one after another, so that the worker holds two models whatever its share.
        """
        folding = folding_of(
            self._experiment.prototype, get_record(ArrayRecord, requests[0].content, protocol.ARRAYS)
        )
        step = len(requests) if self.answering.together else 1
        replies: list[Message] = []
        folded: list[int] = []
        for k in range(0, len(requests), step):
            come = self.answering(requests[k : k + step], contexts[k : k + step])
            folded += [k + n for n, reply in enumerate(come) if folding.take(reply)]
            replies += come
        mean = folding.mean()
        sums = {name: values.cpu().numpy() for name, values in folding.sums().items()} if folded else {}
        return _travelling(replies, contexts), folded, None if mean is None else Buffered(mean), sums

    def sums(self, arrays: ArrayRecord, batches: range, split: str, owner: int | None) -> list[Sums]:
        """Return the sums of each metric over each of these batches of ``test`` or ``validation``.

        ``owner`` is the node whose own the model is; None where several share it.
        """
        experiment = self._experiment
        load(experiment.node_model, arrays)
        by_batch = batch_sums(
            experiment.node_model, kept(experiment, split, owner), experiment.dataset.task, batches
        )
        return [{name: value.cpu() for name, value in sums.items()} for sums in by_batch]

    def compute_correctness(self, arrays: ArrayRecord, batches: range) -> list[Tensor]:
        """Return which examples the model is right about, of these batches of the validation set."""
        load(self._experiment.node_model, arrays)
        return [correct(self._experiment.node_model, self._experiment.validation_examples, batches)]

    @property
    def _experiment(self) -> Experiment:
        return load_experiment(self.overrides)


def _travelling(replies: list[Message], contexts: list[Context]) -> list[tuple[Message, RecordDict]]:
    """Return each reply as it travels, with its node's state after it."""
    for reply in replies:
        if reply.has_content():
            reply.content = buffered(reply.content)
    states = [buffered(context.state) for context in contexts]
    return list(zip(replies, states, strict=True))


def versions() -> dict[str, str]:
    """Return what must be equal on all machines for their results to be equal."""
    packages = {name: version(name) for name in ("flwr", "torch", "numpy")}
    return {"Python": platform.python_version(), "source": source_hash()} | packages
