"""The code of a Ray worker, which answers messages to any node.

A message comes with its node's context, and the reply returns the context's state: a worker keeps no state
of its own, so another can replace it.
"""

import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from torch import Tensor

from baselines.apps import client_app_of, get_batched_trainer
from baselines.engine.environment import ResourceUsage
from baselines.engine.evaluation import select_examples
from baselines.engine.loggers import set_log_colors
from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.data import PartitionArrays
from baselines.experiment.experiment import Experiment
from baselines.experiment.experiment import load as load_experiment
from baselines.experiment.identity import source_hash
from baselines.grids.inline import MessageHandler
from baselines.grids.ray import BufferedRecord, buffer_content
from clients.evaluation import Sums, find_correct, iterate_sums
from clients.round import get_record, load_arrays
from strategies.core.replies import make_partial_sums
from strategies.shared import protocol


class Worker:
    """Answers messages to the nodes of one experiment.

    Parameters
    ----------
    overrides : the experiment's overrides
    configuration : its composed YAML, so that this machine needs no folder of options
    versions : the driver's :func:`versions`
    batched : whether nodes whose messages come at once train batched
    dealt : which node holds which rows, as computed by the driver
    """

    def __init__(
        self,
        overrides: str,
        configuration: str,
        versions: dict[str, str],
        batched: bool,
        dealt: PartitionArrays,
    ) -> None:
        set_log_colors()
        config.register_composed(overrides, configuration)
        self.overrides, self.expected, self.dealt = overrides, versions, dealt
        self.answering = MessageHandler(
            client_app_of(overrides), get_batched_trainer(overrides) if batched else None
        )

    def unfit(self) -> str | None:
        """Prepare for messages; return what this machine lacks, or None if it is fit."""
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
        except UserError as error:  # a missing device or data set
            return str(error)
        return None

    def used(self) -> dict[str, Any]:
        """Return how the steps of this process were taken, and its accelerator's peak memory."""
        return self._used.describe()

    def answer(self, requests: list[Message], contexts: list[Context]) -> list[tuple[Message, RecordDict]]:
        """Return each node's reply and new state."""
        return _pack_replies(self.answering(requests, contexts), contexts)

    def answer_folded(
        self, requests: list[Message], contexts: list[Context]
    ) -> tuple[list[tuple[Message, RecordDict]], list[int], ArrayRecord | None, dict[str, np.ndarray]]:
        """Return replies and states, the positions of folded replies, and the mean and sums of their
        models.

        A reply that the server would leave out of the round is not folded. Nodes that are not batched are
        folded one after another, so the worker holds only two models at a time.
        """
        folding = make_partial_sums(
            self._experiment.prototype, get_record(ArrayRecord, requests[0].content, protocol.ARRAYS)
        )
        step = len(requests) if self.answering.batched_trainer else 1
        replies: list[Message] = []
        folded: list[int] = []
        for k in range(0, len(requests), step):
            come = self.answering(requests[k : k + step], contexts[k : k + step])
            folded += [k + n for n, reply in enumerate(come) if folding.add_reply(reply)]
            replies += come
        mean = folding.mean()
        sums = {name: values.cpu().numpy() for name, values in folding.sums().items()} if folded else {}
        return (
            _pack_replies(replies, contexts),
            folded,
            None if mean is None else BufferedRecord(mean),
            sums,
        )

    def sums(self, arrays: ArrayRecord, batches: range, split: str, owner: int | None) -> list[Sums]:
        """Return the sums of each metric over each of these batches of ``test`` or ``validation``.

        ``owner`` is the node that the model belongs to; None if several share it.
        """
        experiment = self._experiment
        load_arrays(experiment.node_model, arrays)
        by_batch = iterate_sums(
            experiment.node_model,
            select_examples(experiment, split, owner),
            experiment.dataset.task,
            batches,
        )
        return [{name: value.cpu() for name, value in sums.items()} for sums in by_batch]

    def compute_correctness(self, arrays: ArrayRecord, batches: range) -> list[Tensor]:
        """Return, for these batches of the validation set, which examples are predicted correctly."""
        load_arrays(self._experiment.node_model, arrays)
        return [find_correct(self._experiment.node_model, self._experiment.validation_examples, batches)]

    @property
    def _experiment(self) -> Experiment:
        return load_experiment(self.overrides)


def _pack_replies(replies: list[Message], contexts: list[Context]) -> list[tuple[Message, RecordDict]]:
    """Return each reply, and its node's new state, ready to send."""
    for reply in replies:
        if reply.has_content():
            reply.content = buffer_content(reply.content)
    states = [buffer_content(context.state) for context in contexts]
    return list(zip(replies, states, strict=True))


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all machines for equal results."""
    packages = {name: version(name) for name in ("flwr", "torch", "numpy")}
    return {"Python": platform.python_version(), "source": source_hash()} | packages
