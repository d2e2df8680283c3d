"""The plainest way to take rounds: a loop of ``torch.autograd`` and ``torch.optim``, and no code of ours.

It is given plain things: a module, tensors, and the class of an optimiser. So that both ways see the same
batches, it draws from the same generators as a node does: node k's in round t is seeded with

    numpy.random.default_rng([seed, t, k, 4]).integers(2**63)

which shuffles the node's examples at the start of every epoch (not where a step takes all of them, unless
they are augmented) and then augments each batch; torch's own generator, for dropout, gets the same seed.

The server's step is FedAvg's in float32, w - sum_k alpha_k (w - w_k), with all parameters in one vector: a
product's last bit depends on the shape of what is multiplied. Buffers are averaged in float64.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

LOCAL_TRAINING = 4  # what the generators of local training are numbered
State = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Augmentation = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Data:
    """A node's examples, as the model takes them."""

    inputs: Tensor
    targets: Tensor
    augment: Augmentation | None = None


@dataclass(frozen=True)
class Round:
    """What a round ends with: the model, and the mean loss (and accuracy) over all batches of all nodes."""

    state: State
    metrics: dict[str, float]


@dataclass
class Plain:
    """FedAvg over all nodes; subclasses in ``plain_methods`` change what their method changes.

    ``report`` turns a batch's loss into what is printed of it, summed over the examples.
    """

    model: nn.Module
    data: Sequence[Data]
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    client: dict[str, Any]  # the numbers of conf/client
    seed: int
    loss: Loss = cross_entropy
    report: Callable[[float, int], float] = lambda loss, size: loss * size
    autocast: torch.dtype | None = None
    server_inputs: Tensor | None = None  # what the server has, without labels

    def __post_init__(self) -> None:
        self.kept: dict[int, Optimizer] = {}

    # ---- what a method may change ----

    def begin(self, server_round: int, node: int) -> None:
        """Before the node's first step; the model is the server's."""

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        """What a step descends, where it is not the loss that is reported."""
        return loss

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        """After each backward pass: change ``p.grad``."""

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        """After the node's last step."""

    def weights(self) -> Tensor:
        """The nodes' alpha in the server's mean."""
        sizes = torch.tensor([len(each.targets) for each in self.data], dtype=torch.float64)
        return sizes / sizes.sum()

    # ---- the loop ----

    def rounds(self, count: int) -> list[Round]:
        return [self._round(t) for t in range(1, count + 1)]

    def _round(self, t: int) -> Round:
        start = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        ends, metrics = [], []
        for k in range(len(self.data)):
            self.model.load_state_dict(start)
            metrics.append(self._train(t, k))
            ends.append({name: value.clone() for name, value in self.model.state_dict().items()})
        self.model.load_state_dict(self._mean(start, ends))
        sizes = [len(each.targets) for each in self.data]
        means = {name: float(np.average([m[name] for m in metrics], weights=sizes)) for name in metrics[0]}
        return Round({name: value.clone() for name, value in self.model.state_dict().items()}, means)

    def _train(self, t: int, k: int) -> dict[str, float]:
        seed = int(
            np.random.default_rng([self.seed, t, k, LOCAL_TRAINING]).integers(2**63, dtype=np.uint64)
        )
        torch.manual_seed(seed)
        self.model.train()
        self.begin(t, k)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = self._optimizer(k, trained)
        rate = optimizer.param_groups[0]["lr"] * self.client["schedule"]["gamma"] ** (t - 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss_sum = hits = seen = steps = 0.0
        for inputs, targets, last in self._batches(self.data[k], torch.Generator().manual_seed(seed)):
            optimizer.zero_grad()
            outputs = self._forward(inputs)
            loss = self.loss(outputs, targets)
            self.objective(k, inputs, outputs, targets, loss).backward()
            self.edit(k, trained)
            if self.client["max_grad_norm"] is not None:
                nn.utils.clip_grad_norm_(trained, self.client["max_grad_norm"])
            optimizer.step()
            loss_sum += self.report(loss.item(), len(targets))
            if labelled := targets.dtype == torch.int64:
                right = (outputs.argmax(-1) == targets).float()
                hits += float(right.view(len(targets), -1).mean(1).sum())
            seen, steps = seen + len(targets), steps + 1
            if last and hasattr(optimizer, "epoch_step"):
                optimizer.epoch_step()
        self.end(k, trained, rate, int(steps))
        accuracy = {"accuracy": hits / seen} if labelled else {}
        return {"loss": loss_sum / seen, **accuracy}

    def _optimizer(self, k: int, trained: list[nn.Parameter]) -> Optimizer:
        """A fresh optimiser, or the one that the node has kept."""
        if not self.client["keep_optimizer"]:
            return self.optimizer(trained)
        return self.kept.setdefault(k, self.optimizer(trained))

    def _forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, self.autocast) if self.autocast else nullcontext():
            outputs: Tensor = self.model(inputs)
        return outputs.float() if self.autocast else outputs

    def _batches(self, data: Data, draws: torch.Generator) -> Iterator[tuple[Tensor, Tensor, bool]]:
        size, batch = len(data.targets), self.client["batch_size"] or len(data.targets)
        in_order = batch >= size and data.augment is None
        taken, wanted = 0, self.client["local_steps"] or self.client["local_epochs"] * -(-size // batch)
        while taken < wanted:
            order = torch.arange(size) if in_order else torch.randperm(size, generator=draws)
            parts = order.split(batch)[: wanted - taken]
            for rows in parts:
                inputs, targets = data.inputs[rows], data.targets[rows]
                taken += 1
                if data.augment is not None:
                    inputs = data.augment(inputs, draws)
                yield inputs, targets, taken % -(-size // batch) == 0

    def _mean(self, start: State, ends: list[State]) -> State:
        weights, names = self.weights(), [name for name, _ in self.model.named_parameters()]
        w = _flat(start, names)
        moved = w - weights.to(w.dtype) @ torch.stack([w - _flat(end, names) for end in ends])
        mean, column = {}, 0
        for name, value in start.items():
            if name in names:
                mean[name] = moved[column : column + value.numel()].view(value.shape)
                column += value.numel()
            else:
                rows = torch.stack([end[name].double().flatten() for end in ends]).cpu()
                average = (weights @ rows).view(value.shape)
                mean[name] = (average if value.is_floating_point() else average.round()).to(value.dtype)
        return mean


def _flat(state: State, names: list[str]) -> Tensor:
    return torch.cat([state[name].flatten() for name in names]).cpu()
