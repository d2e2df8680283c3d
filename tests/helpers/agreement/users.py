"""What a user brings: models, tasks and clients that nobody here has foreseen; ``conf/`` names them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from baselines.datasets import Dataset
from clients import Classification, Correction, Examples, LocalTraining, Task


def images(shape: list[int], num_classes: int, size: int, augment: object = None) -> Dataset:
    """Return random pictures, each a little brighter the higher its label is."""
    draws = torch.Generator().manual_seed(4)
    labels = torch.randint(num_classes, (size,), generator=draws)
    inputs = torch.randn(size, *shape, generator=draws) + labels.view(-1, *[1] * len(shape)) / num_classes
    return Dataset(inputs, labels, inputs, labels, Classification(), augment=augment)  # type: ignore[arg-type]


def tokens(length: int, num_classes: int, vocabulary: int, size: int) -> Dataset:
    """Return random texts of at least one token, in which a label's own token comes first."""
    draws = torch.Generator().manual_seed(4)
    labels = torch.randint(num_classes, (size,), generator=draws)
    inputs = torch.randint(1, vocabulary, (size, length), generator=draws)
    inputs[:, 0] = labels + 1
    lengths = torch.randint(1, length + 1, (size, 1), generator=draws)
    inputs = inputs.where(torch.arange(length) < lengths, 0)
    return Dataset(inputs, labels, inputs, labels, Classification())


@dataclass(frozen=True)
class Smoothed(Task):
    """Cross-entropy with smoothed labels: a task of one's own; it knows of ``present``, as tasks must."""

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        each = cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)
        correct = outputs.detach().argmax(1) == targets
        if present is None:
            mean = cross_entropy(
                outputs, targets, label_smoothing=0.1
            )  # to the bit what torch's module says
            return mean, {"loss": each.detach().sum(), "accuracy": correct.sum()}
        total = (each * present).sum()
        return total / present.sum(), {"loss": total.detach(), "accuracy": (correct & (present > 0)).sum()}


def smoothed(shape: list[int], num_classes: int, size: int) -> Dataset:
    plain = images(shape, num_classes, size)
    rows = plain.train_inputs, plain.train_targets, plain.test_inputs, plain.test_targets
    return Dataset(*rows, Smoothed())


class Twins(nn.Module):
    """Two layers of one shape, and one that reads them; the other models here differ in ``between``."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        features = torch.Size(input_shape).numel()
        self.a, self.b = nn.Linear(features, features), nn.Linear(features, features)
        self.out = nn.Linear(features, num_classes)

    def between(self, x: Tensor) -> Tensor:
        return self.b(x).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.between(self.a(x.flatten(1)).relu()))


class Frozen(Twins):
    """Its first layer does not learn."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes)
        self.a.requires_grad_(False)


class Dropping(Twins):
    """Draws from torch's generator: dropout."""

    def between(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.b(x).relu(), 0.4, self.training)


class Buffered(Twins):
    """Has buffers: running statistics and their integer count."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes)
        self.norm = nn.BatchNorm1d(self.b.out_features)

    def between(self, x: Tensor) -> Tensor:
        return self.norm(self.b(x)).relu()


class Double(Buffered):
    """Computes in float64, with dropout; its first layer does not learn."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes)
        self.double().a.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x.double(), 0.2, self.training))


class Small(nn.Module):
    """One hidden layer, in either precision."""

    def __init__(self, input_shape: list[int], num_classes: int, precision: str) -> None:
        super().__init__()
        features = torch.Size(input_shape).numel()
        self.hidden, self.out = nn.Linear(features, 8), nn.Linear(8, num_classes)
        self.dtype = getattr(torch, precision)
        self.to(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(x.flatten(1).to(self.dtype)).relu())


class Counting(Twins):
    """Keeps a number in Python that every forward pass in training changes."""

    t = 0

    def between(self, x: Tensor) -> Tensor:
        self.t += self.training
        return self.b(x).relu() * (1 + self.t % 5)


class LayerDrop(Twins):
    """Leaves a layer out when Python's own random numbers say so."""

    def between(self, x: Tensor) -> Tensor:
        return x + self.b(x).relu() if random.random() < 0.5 else x


class OwnForward(Twins):
    """Sets its own ``forward`` on the instance, closed over this very model."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__(input_shape, num_classes)
        plain = self.forward

        def centred(x: Tensor) -> Tensor:
            outputs = plain(x)
            return outputs - outputs.mean(1, keepdim=True)

        self.forward = centred  # type: ignore[method-assign]


class Dynamic(Correction):
    """FedDyn's: g <- g - h_k + alpha (w - w_t)."""

    def __init__(self, start: list[Tensor], h: list[Tensor], alpha: float) -> None:
        self.start, self.h, self.alpha = start, h, alpha

    def transform_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        for p, h, start in zip(parameters, self.h, self.start, strict=True):
            assert p.grad is not None
            p.grad.sub_(h).add_(p.detach() - start, alpha=self.alpha)


@dataclass(frozen=True, kw_only=True)
class FedDyn(LocalTraining):
    """A client of one's own, by what LocalTraining offers: one more correction, and the node's memory."""

    alpha: float = 0.5

    def __call__(
        self, model: nn.Module, examples: Examples, task: Task, **more: object
    ) -> dict[str, float]:  # type: ignore[override]
        memory = more["memory"]
        assert isinstance(memory, RecordDict)
        start = [p.detach().clone() for p in model.parameters()]
        stored = memory.array_records.get("feddyn")
        if stored is None:
            h = [torch.zeros_like(p) for p in start]
        else:
            h = [torch.from_numpy(array.numpy().copy()) for array in stored.values()]
        corrections = [*more.pop("corrections"), Dynamic(start, h, self.alpha)]  # type: ignore[misc]
        metrics = super().__call__(model, examples, task, corrections=corrections, **more)  # type: ignore
        ends = [p.detach() for p in model.parameters()]
        kept = [old - self.alpha * (p - w) for old, p, w in zip(h, ends, start, strict=True)]
        arrays = {str(number): Array(value.numpy()) for number, value in enumerate(kept)}
        memory["feddyn"] = ArrayRecord(arrays)
        return metrics


@dataclass(frozen=True, kw_only=True)
class Alternating(LocalTraining):
    """Freezes the first of two equally shaped layers in odd rounds, the second in even ones."""

    def __call__(
        self, model: nn.Module, *rest: object, server_round: int, **more: object
    ) -> dict[str, float]:  # type: ignore[override]
        for number, layer in enumerate((model.a, model.b)):
            layer.requires_grad_((server_round + number) % 2 == 0)  # type: ignore[operator,union-attr]
        return super().__call__(model, *rest, server_round=server_round, **more)  # type: ignore[arg-type]
