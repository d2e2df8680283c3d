"""The limit of a round on an accelerator: FedAvg written by hand, a CUDA graph for each shape of a batch.

The data lie on the device, a round's order is drawn there, and nothing goes through host memory. The
gradient is recorded by ``make_fx``; on CUDA the recording and its SGD step are captured once and replayed.
Elsewhere the same calls are made one by one, which is how this is tested without a GPU.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import log_softmax

from baselines.experiment.experiment import Experiment
from clients.fast import graphs

from .timing import round_seconds


class Captured:
    """Rounds of federated averaging over nodes with equally many examples, in mini-batches of SGD.

    Parameters
    ----------
    this : whose model, data, device and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    together : whether all nodes take a step at once, as a stack
    autocast : the type of the arithmetic, None for the parameters' own
    """

    def __init__(
        self, this: Experiment, rounds: int, together: bool, autocast: torch.dtype | None = None
    ) -> None:
        self.device, self.rounds, self.training = this.device, rounds, this.training
        self.model, self.autocast = this.model().to(this.device), autocast
        nodes = [this.node(k).train.batch(slice(None), this.device) for k in range(this.settings.num_nodes)]
        self.size = min(len(targets) for _, targets in nodes)
        self.inputs = torch.cat([inputs[: self.size] for inputs, _ in nodes])
        self.targets = torch.cat([targets[: self.size] for _, targets in nodes])
        self.first = torch.arange(len(nodes), device=self.device)[:, None] * self.size
        self.names = [name for name, _ in self.model.named_parameters()]
        self.start = [p.detach().clone() for p in self.model.parameters()]
        self.stack = len(nodes) if together else 1  # nodes that take a step at once
        self.params = [p.expand(self.stack, *p.shape).clone() for p in self.start]
        self.steps: dict[
            int, tuple[Tensor, Callable[[], None]]
        ] = {}  # {batch size: (rows, a step on them)}

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        return round_seconds(self.one_round, self.rounds)

    @torch.no_grad()
    def one_round(self) -> None:
        """Train every node from the same model, and average; the device has finished on return."""
        count = len(self.first)
        order = torch.rand(count, self.size, device=self.device).argsort(1) + self.first
        mean = [torch.zeros_like(p) for p in self.start]
        for rows in torch.split(order, self.stack):
            torch._foreach_copy_(self.params, [p.expand(self.stack, *p.shape) for p in self.start])
            for batch in self._batches(rows):
                static, step = self._step(batch.shape[1])
                static.copy_(batch)
                step()
            torch._foreach_add_(mean, [p.sum(0) for p in self.params], alpha=1 / count)
        torch._foreach_copy_(self.start, mean)
        float(self.start[0].sum())  # waits for the device

    def _batches(self, rows: Tensor) -> Sequence[Tensor]:
        batches = torch.split(rows, self.training.batch_size or self.size, dim=1)
        return batches[: self.training.local_steps] if self.training.local_steps else batches

    def _step(self, size: int) -> tuple[Tensor, Callable[[], None]]:
        if size not in self.steps:
            rows = self.first[: self.stack].expand(-1, size).contiguous()
            self.steps[size] = rows, self._captured(self._recorded(rows))
        return self.steps[size]

    def _recorded(self, rows: Tensor) -> Callable[[], None]:
        """Return a step of SGD on the examples that ``rows`` [nodes, batch] will name."""
        gradient = vmap(grad(self._loss)) if self.stack > 1 else self._of_one
        batch = self.inputs[rows], self.targets[rows]
        recorded = make_fx(lambda params, x, y: gradient(params, x, y))(self.params, *batch)

        def step() -> None:
            gradients = recorded(self.params, self.inputs[rows], self.targets[rows])
            torch._foreach_add_(self.params, gradients, alpha=-self.training.lr)

        return step

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return the step as one CUDA graph, the parameters as they were; elsewhere the step itself."""
        if self.device.type != "cuda":
            return step
        before = [p.clone() for p in self.params]
        replay, _ = graphs.capture(step)
        torch._foreach_copy_(self.params, before)
        return replay

    def _loss(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        named = dict(zip(self.names, params, strict=True))
        with torch.autocast(
            self.device.type, self.autocast, enabled=self.autocast is not None, cache_enabled=False
        ):
            outputs = functional_call(self.model, named, (inputs,))
            # cross_entropy under vmap puts a number on the host, which no graph can fetch from there
            return -log_softmax(outputs, 1).gather(1, targets[:, None]).mean()

    def _of_one(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Return a single node's gradients; a stack of one costs what ``vmap`` adds to every operation."""
        gradients = grad(self._loss)([p[0] for p in params], inputs[0], targets[0])
        return [g[None] for g in gradients]


def model_of(captured: Captured) -> nn.Module:
    """Return the global model as it is now."""
    with torch.no_grad():
        for p, values in zip(captured.model.parameters(), captured.start, strict=True):
            p.copy_(values)
    return captured.model
