"""What methods change in the plain loop, each written down from its paper's own lines."""

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from helpers.agreement.plain import LOCAL_TRAINING, Plain, Round, State


class FedProx(Plain):
    """Li et al. 2020, Algorithm 2: g <- g + mu (w - w_t)."""

    mu = 0.5

    def begin(self, server_round: int, node: int) -> None:
        self.start = [p.detach().clone() for p in self.model.parameters() if p.requires_grad]

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        for p, start in zip(trained, self.start, strict=True):
            assert p.grad is not None
            p.grad.add_(p.detach() - start, alpha=self.mu)  # one operation: the last bit is its own


class Scaffold(Plain):
    """Karimireddy et al. 2020, Algorithm 1, with option 2; all nodes take part in each round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        zeros = [torch.zeros_like(p) for p in self.model.parameters() if p.requires_grad]
        self.c, self.own = zeros, dict.fromkeys(range(len(self.data)), zeros)
        self.changes: list[list[Tensor]] = []

    def weights(self) -> Tensor:
        return torch.full((len(self.data),), 1 / len(self.data), dtype=torch.float64)

    def begin(self, server_round: int, node: int) -> None:
        self.start = [p.detach().clone() for p in self.model.parameters() if p.requires_grad]

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        for p, c, own in zip(trained, self.c, self.own[node], strict=True):
            assert p.grad is not None
            p.grad.add_(c - own)

    def renewed(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> list[Tensor]:
        places = zip(self.own[node], self.c, self.start, trained, strict=True)
        return [own - c + (start - p.detach()) / (steps * rate) for own, c, start, p in places]

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        renewed = self.renewed(node, trained, rate, steps)
        self.changes.append([new - old for new, old in zip(renewed, self.own[node], strict=True)])
        self.own[node] = renewed
        if len(self.changes) == len(self.data):  # the round's last node
            self.c = [c + sum(d) / len(self.data) for c, *d in zip(self.c, *self.changes, strict=True)]
            self.changes = []


class ScaffoldOption1(Scaffold):
    """The same with option 1: c_k is the gradient of all of the node's examples at w_t."""

    def begin(self, server_round: int, node: int) -> None:
        super().begin(server_round, node)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        loss = self.loss(self.model(self.data[node].inputs), self.data[node].targets)
        self.at_start = list(torch.autograd.grad(loss, trained))

    def renewed(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> list[Tensor]:
        return self.at_start


class Scaffnew(Plain):
    """Mishchenko et al. 2022, Algorithm 2: all nodes communicate after a step with probability p.

    The number of steps of a round is drawn from [seed, t, 0, 17].
    """

    p = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        self.h: dict[int, list[Tensor]] = {}
        self.ends: dict[int, tuple[list[Tensor], float]] = {}

    def weights(self) -> Tensor:
        return torch.full((len(self.data),), 1 / len(self.data), dtype=torch.float64)

    def begin(self, server_round: int, node: int) -> None:
        steps = int(np.random.default_rng([self.seed, server_round, 0, 17]).geometric(self.p))
        self.client = self.client | {"local_epochs": None, "local_steps": steps}
        mean = [p.detach().clone() for p in self.model.parameters() if p.requires_grad]
        if node not in self.ends:
            self.h[node] = [torch.zeros_like(p) for p in mean]
            return
        ends, rate = self.ends[node]
        places = zip(self.h[node], mean, ends, strict=True)
        self.h[node] = [h + self.p / rate * (x - end) for h, x, end in places]

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        for p, h in zip(trained, self.h[node], strict=True):
            assert p.grad is not None
            p.grad.sub_(h)

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        self.ends[node] = [p.detach().clone() for p in trained], rate


class InverseVariance(Plain):
    """Reyes et al. 2021: a node counts as the inverse of its gradient's variance over its steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gradients: dict[int, list[Tensor]] = {}

    def begin(self, server_round: int, node: int) -> None:
        self.gradients[node] = []

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        flat = [p.grad.flatten().double() for p in trained if p.grad is not None]
        self.gradients[node].append(torch.cat(flat))

    def weights(self) -> Tensor:
        variances = [torch.stack(self.gradients[k]).var(0).mean() for k in range(len(self.data))]
        precision = 1 / torch.stack(variances).cpu()
        return precision / precision.sum()


class FedDyn(Plain):
    """Acar et al. 2021 on the node: g <- g - h_k + alpha (w - w_t); h_k <- h_k - alpha (w_k - w_t)."""

    alpha = 0.5

    def begin(self, server_round: int, node: int) -> None:
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in trained]
        if server_round == 1 and node == 0:
            self.h = {k: [torch.zeros_like(p) for p in trained] for k in range(len(self.data))}

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        for p, h, start in zip(trained, self.h[node], self.start, strict=True):
            assert p.grad is not None
            p.grad.sub_(h).add_(p.detach() - start, alpha=self.alpha)

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        places = zip(self.h[node], trained, self.start, strict=True)
        self.h[node] = [h - self.alpha * (p.detach() - start) for h, p, start in places]


class FedRep(FedProx):
    """Collins et al. 2021, Algorithm 1: epochs of the node's own head, then the body; FedProx' term.

    The head's order of examples is drawn from [seed of the node's round, 0, 0, 13].
    """

    head_epochs = 2

    def begin(self, server_round: int, node: int) -> None:
        seed = np.random.default_rng([self.seed, server_round, node, LOCAL_TRAINING]).integers(
            2**63, dtype=np.uint64
        )
        seed = int(np.random.default_rng([int(seed), 0, 0, 13]).integers(2**63, dtype=np.uint64))
        head, body = [list(part.parameters()) for part in (self.model.out, self.model.hidden)]
        if server_round == 1 and node == 0:
            self.sent = [p.detach().clone() for p in head]
            self.heads = dict.fromkeys(range(len(self.data)), self.sent)
        self._load(self.heads[node])
        self._resting(body)
        optimizer = self.optimizer(head)
        wanted = self.client
        self.client = wanted | {"local_epochs": self.head_epochs, "local_steps": None}
        for inputs, targets, _ in self._batches(self.data[node], torch.Generator().manual_seed(seed)):
            optimizer.zero_grad()
            self.loss(self.model(inputs), targets).backward()
            optimizer.step()
        self.client = wanted
        self._resting(head)
        super().begin(server_round, node)

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        self._resting([])
        self.heads[node] = [p.detach().clone() for p in self.model.out.parameters()]
        self._load(self.sent)

    def _load(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for p, value in zip(self.model.out.parameters(), values, strict=True):
                p.copy_(value)

    def _resting(self, parameters: list[nn.Parameter]) -> None:
        for p in self.model.parameters():
            p.requires_grad_(not any(p is each for each in parameters))


class FedSAM(Plain):
    """Qu et al. 2022, Algorithm 1: the gradient at w + rho g / ||g|| of the same batch."""

    rho = 0.5

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        self.batch = inputs, targets
        return loss

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        gradient = nn.utils.parameters_to_vector([p.grad for p in trained if p.grad is not None])
        w = nn.utils.parameters_to_vector(trained).detach().clone()
        nn.utils.vector_to_parameters(w + self.rho * gradient / gradient.norm(), trained)
        inputs, targets = self.batch
        slopes = torch.autograd.grad(self.loss(self.model(inputs), targets), trained)
        nn.utils.vector_to_parameters(w, trained)
        for p, slope in zip(trained, slopes, strict=True):
            p.grad = slope


class FedLC(Plain):
    """Zhang et al. 2022: -log of exp(f_y - tau n_y^-1/4) over the sum of all labels that the node has."""

    tau = 2.0

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        labels, counts = self.data[node].targets.unique(return_counts=True)
        shifted = {
            int(y): outputs[:, y] - self.tau / int(n) ** 0.25 for y, n in zip(labels, counts, strict=True)
        }
        total = torch.stack(list(shifted.values())).exp().sum(0)
        own = torch.stack([shifted[int(y)][row] for row, y in enumerate(targets)])
        return (total.log() - own).mean()


class FedRS(Plain):
    """Li and Zhan 2021: the logits of labels that the node does not have count alpha times."""

    alpha = 0.25

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        own = set(self.data[node].targets.tolist())
        columns = [f if c in own else self.alpha * f for c, f in enumerate(outputs.unbind(1))]
        return self.loss(torch.stack(columns, 1), targets)


class FedNTD(Plain):
    """Lee et al. 2022, equations 4 to 6: of each example the labels that it does not have."""

    beta, tau = 3.0, 2.0

    def begin(self, server_round: int, node: int) -> None:
        self.fixed = copy.deepcopy(self.model)

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        theirs, total = self.fixed(inputs).detach(), 0.0
        for own, fixed, y in zip(outputs, theirs, targets, strict=True):
            others = [c for c in range(len(own)) if c != int(y)]
            p, q = (f[others].div(self.tau).softmax(0) for f in (fixed, own))
            total = total + (p * (p / q).log()).sum()
        return loss + self.beta * total / len(targets)


class FedDecorr(Plain):
    """Shi et al. 2023, equation 6, of what the last layer is given; numpy's corrcoef, but for the 1e-8."""

    beta = 2.0

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        z = self.model.hidden(inputs.flatten(1)).relu()
        d, total = z.shape[1], 0.0
        spread = [(z[:, i].var(correction=0) + 1e-8).sqrt() for i in range(d)]
        for i in range(d):
            for j in range(d):
                covariance = ((z[:, i] - z[:, i].mean()) * (z[:, j] - z[:, j].mean())).mean()
                total = total + (covariance / spread[i] / spread[j]) ** 2
        return loss + self.beta * total / d**2


class PFedMe(Plain):
    """Dinh et al. 2020, Algorithm 1: K steps towards theta from w, then g = lambda (w - theta)."""

    strength, inner_steps, inner_rate = 5.0, 3, 0.1

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        self.batch = inputs, targets
        return loss

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        inputs, targets = self.batch
        w = [p.detach().clone() for p in trained]
        inner = torch.optim.SGD(trained, lr=self.inner_rate)
        for _ in range(self.inner_steps):
            inner.zero_grad()
            near = sum((p - anchor).square().sum() for p, anchor in zip(trained, w, strict=True))
            (self.loss(self.model(inputs), targets) + self.strength / 2 * near).backward()
            inner.step()
        for p, anchor in zip(trained, w, strict=True):
            p.grad = self.strength * (anchor - p.detach())
            p.data.copy_(anchor)


class FedBABU(Plain):
    """Oh et al. 2022, Algorithm 1: the head is never trained."""

    def begin(self, server_round: int, node: int) -> None:
        self.model.out.requires_grad_(False)

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        self.model.out.requires_grad_(True)


class LGFedAvg(Plain):
    """Liang et al. 2020, Algorithm 1: all layers but the last are each node's own; the last is averaged."""

    def begin(self, server_round: int, node: int) -> None:
        if server_round == 1 and node == 0:
            self.sent = [p.detach().clone() for p in self.model.hidden.parameters()]
            self.bodies = dict.fromkeys(range(len(self.data)), self.sent)
        self._load(self.bodies[node])

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        self.bodies[node] = [p.detach().clone() for p in self.model.hidden.parameters()]
        self._load(self.sent)

    def _load(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for p, value in zip(self.model.hidden.parameters(), values, strict=True):
                p.copy_(value)


class FedCM(Plain):
    """Xu et al. 2021, Algorithm 2: g <- alpha g + (1 - alpha) D; all nodes take part in each round."""

    alpha = 0.25

    def weights(self) -> Tensor:
        return torch.full((len(self.data),), 1 / len(self.data), dtype=torch.float64)

    def begin(self, server_round: int, node: int) -> None:
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in trained]
        if server_round == 1 and node == 0:
            self.momentum = [torch.zeros_like(p) for p in trained]
        if node == 0:
            self.next = [torch.zeros_like(p) for p in trained]

    def edit(self, node: int, trained: list[nn.Parameter]) -> None:
        for p, m in zip(trained, self.momentum, strict=True):
            p.grad = self.alpha * p.grad + (1 - self.alpha) * m

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        ways = [(start - p.detach()) / (rate * steps) for start, p in zip(self.start, trained, strict=True)]
        self.next = [n + way / len(self.data) for n, way in zip(self.next, ways, strict=True)]
        if node == len(self.data) - 1:
            self.momentum = self.next


class MimeLite(FedCM):
    """Karimireddy et al. 2021, Algorithm 1 of Mime, with alpha = 1 - beta: D is of gradients at w_t."""

    def begin(self, server_round: int, node: int) -> None:
        super().begin(server_round, node)
        loss = self.loss(self.model(self.data[node].inputs), self.data[node].targets)
        slopes = torch.autograd.grad(loss, [p for p in self.model.parameters() if p.requires_grad])
        self.next = [n + g / len(self.data) for n, g in zip(self.next, slopes, strict=True)]

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        if node == len(self.data) - 1:
            places = zip(self.momentum, self.next, strict=True)
            self.momentum = [(1 - self.alpha) * m + self.alpha * g for m, g in places]


class IFCA(Plain):
    """Ghosh et al. 2020, Algorithm 1, option II: argmin_j F_k(w_j), and the plain mean within a cluster.

    Equal losses are drawn from [seed of the node's round, 0, 0, 18]. What a round ends with is the first model.
    """

    num_models = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.models = [self._copy() for _ in range(self.num_models)]
        self.cluster: list[int] = []

    def weights(self) -> Tensor:
        return torch.full((len(self.cluster),), 1 / len(self.cluster), dtype=torch.float64)

    def _copy(self) -> State:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def _choose(self, t: int, k: int) -> int:
        losses, data = [], self.data[k]
        self.model.eval()
        for model in self.models:
            self.model.load_state_dict(model)
            losses.append(self.loss(self.model(data.inputs), data.targets).item())
        least = [j for j, loss in enumerate(losses) if loss == min(losses)]
        seed = np.random.default_rng([self.seed, t, k, LOCAL_TRAINING]).integers(2**63, dtype=np.uint64)
        return (
            least[np.random.default_rng([int(seed), 0, 0, 18]).integers(len(least))]
            if least[1:]
            else least[0]
        )

    def _round(self, t: int) -> Round:
        chosen = [self._choose(t, k) for k in range(len(self.data))]
        ends, metrics = [], []
        for k, j in enumerate(chosen):
            self.model.load_state_dict(self.models[j])
            metrics.append(self._train(t, k))
            ends.append(self._copy())
        for j in set(chosen):
            self.cluster = [k for k in range(len(self.data)) if chosen[k] == j]
            self.models[j] = self._mean(self.models[j], [ends[k] for k in self.cluster])
        sizes = [len(each.targets) for each in self.data]
        means = {name: float(np.average([m[name] for m in metrics], weights=sizes)) for name in metrics[0]}
        return Round(dict(self.models[0]), means)


class HypCluster(IFCA):
    """Mansour et al. 2020, HypCluster: the same, weighted by examples."""

    def weights(self) -> Tensor:
        sizes = torch.tensor([len(self.data[k].targets) for k in self.cluster], dtype=torch.float64)
        return sizes / sizes.sum()


class FedProto(Plain):
    """Tan et al. 2022, Algorithm 1; what a round ends with is the mean of the nodes' own models."""

    strength = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own: dict[int, State] = {}
        self.prototypes: dict[int, Tensor] = {}
        self.seen: list[tuple[Tensor, Tensor]] = []

    def begin(self, server_round: int, node: int) -> None:
        if node in self.own:
            self.model.load_state_dict(self.own[node])

    def _representation(self, inputs: Tensor) -> Tensor:
        return self.model.hidden(inputs.flatten(1)).relu()

    def objective(
        self, node: int, inputs: Tensor, outputs: Tensor, targets: Tensor, loss: Tensor
    ) -> Tensor:
        z, total = self._representation(inputs), torch.zeros(())
        for row, label in zip(z, targets.tolist(), strict=True):
            if label in self.prototypes:
                total = total + (row - self.prototypes[label]).square().sum()
        return loss + self.strength * total / z.numel() if self.prototypes else loss

    def end(self, node: int, trained: list[nn.Parameter], rate: float, steps: int) -> None:
        self.own[node] = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        with torch.no_grad():
            self.seen.append((self._representation(self.data[node].inputs), self.data[node].targets))
        if len(self.seen) == len(
            self.data
        ):  # the mean over all nodes' examples of a class, at their own models
            z, labels = (torch.cat(part) for part in zip(*self.seen, strict=True))
            self.prototypes = {int(label): z[labels == label].mean(0) for label in labels.unique()}
            self.seen = []

    def _mean(self, start: State, ends: list[State]) -> State:
        return {name: torch.stack([end[name] for end in ends]).mean(0) for name in start}


class Alternating(Plain):
    """In odd rounds the first of two equally shaped layers is frozen, in even ones the second."""

    def begin(self, server_round: int, node: int) -> None:
        for number, layer in enumerate((self.model.a, self.model.b)):
            layer.requires_grad_((server_round + number) % 2 == 0)


class FedDF(Plain):
    """Lin et al. 2020, Algorithm 1: after the mean, Adam on the divergence from the mean of the logits.

    The order of the server's inputs is drawn from [seed, t, 0, 18].
    """

    steps, size, rate = 7, 5, 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self.t = 0

    def _mean(self, start: State, ends: list[State]) -> State:
        self.t += 1
        return self.learn(super()._mean(start, ends), ends)

    def learn(self, student: State, teachers: list[State]) -> State:
        assert self.server_inputs is not None
        seed = np.random.default_rng([self.seed, self.t, 0, 18]).integers(2**63, dtype=np.uint64)
        draws, orders = torch.Generator().manual_seed(int(seed)), []
        for _ in range(self.steps):
            orders += torch.randperm(len(self.server_inputs), generator=draws).split(self.size)
        model, *others = (copy.deepcopy(self.model).eval() for _ in range(1 + len(teachers)))
        model.load_state_dict(student)
        for other, state in zip(others, teachers, strict=True):
            other.load_state_dict(state)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=self.rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        for rows in orders[: self.steps]:
            x = self.server_inputs[rows]
            with torch.no_grad():
                target = torch.stack([other(x) for other in others]).mean(0).softmax(1)
            optimizer.zero_grad()
            kl_div(model(x).log_softmax(1), target, reduction="batchmean").backward()
            optimizer.step()
            schedule.step()
        return {name: value.clone() for name, value in model.state_dict().items()}


class CoDistillation(FedDF):
    """Anil et al. 2018, between rounds: each node's own model learns from the mean of the others' logits."""

    def weights(self) -> Tensor:
        return torch.full((len(self.data),), 1 / len(self.data), dtype=torch.float64)

    def begin(self, server_round: int, node: int) -> None:
        if server_round > 1:
            self.model.load_state_dict(self.own[node])

    def _mean(self, start: State, ends: list[State]) -> State:
        self.t += 1
        self.own = [self.learn(end, [other for other in ends if other is not end]) for end in ends]
        return Plain._mean(self, start, self.own)
