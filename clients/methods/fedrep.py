"""FedRep: a node trains its own head first, the body fixed, and then the shared body, the head fixed.

Collins, Hassani, Mokhtari, Shakkottai: *Exploiting Shared Representations for Personalized Federated
Learning*, ICML 2021 (arXiv 2102.07078), Algorithm 1. With h_k the node's head and phi the body that the
server has sent, the node takes in each round

    h_k   <- h_k - lr grad_h F_k(h_k, phi)              for ``head_epochs`` epochs
    phi_k <- phi_k - lr grad_phi F_k(h_k, phi_k)        for ``client.local_epochs`` epochs

The head is what ``client.private`` names. It stays at the node, which is judged with it and the server's
body. Corrections, stragglers and a kept optimiser are the body's: a head is no other node's. Deviations: a
node's first head is that of the server's first model, as with all private layers; the authors' code trains
all heads once more after the last round. Reduction: ``head_epochs=0`` trains both together: FedPer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import Parameter

from clients.correction import Correction
from clients.examples import Inputs
from clients.fast.trace import Step
from clients.private import private
from clients.training import LocalUpdate, Personal
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, torch_seed


@dataclass(frozen=True)
class FedRep(Personal):
    """Head and body in turn.

    Parameters
    ----------
    head_epochs : of the head by itself, before the body's; 0 trains head and body together
    """

    head_epochs: int = 10

    def __post_init__(self) -> None:
        """Refuse what is no number of epochs."""
        whole = isinstance(self.head_epochs, int) and self.head_epochs >= 0
        require(whole, "client.personal.head_epochs", self.head_epochs, "a whole number, 0 or above")

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        if not _split(model, private)[0]:
            raise ValueError(
                f"client.personal=FedRep trains a node's own layers by themselves, and with client.private="
                f"{list(private)} there are none to train: set client.private=[last]"
            )

    def train(self, update: LocalUpdate) -> dict[str, float]:
        if self.head_epochs == 0:
            return update.run()
        head, body = _split(update.model, update.training.private)
        everything = [p for p in update.model.parameters() if p.requires_grad]
        of_head = replace(
            update,
            training=update.training.with_duration(epochs=self.head_epochs),
            seed=torch_seed(update.seed, Purpose.HEAD),
            corrections=(),
            memory=None,
        )
        with _resting(body):
            of_head.run()
        with _resting(head):
            return replace(update, corrections=[OfAll(c, everything) for c in update.corrections]).run()


class OfAll(Correction):
    """A correction that was made for all parameters, where some of them rest: those have no gradient.

    Parameters
    ----------
    inner : the correction
    parameters : that it was made for
    """

    def __init__(self, inner: Correction, parameters: Sequence[Parameter]) -> None:
        self.inner, self.parameters = inner, parameters

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss."""
        return self.inner.has_loss_term

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.inner.loss_term(model, inputs, outputs, targets)

    def wrap_gradient(self, step: Step) -> Step:
        return self.inner.wrap_gradient(step)

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        self.inner.transform_gradients(self.parameters)

    @property
    def may_end(self) -> bool:
        """Whether it can end a round before its last step."""
        return self.inner.may_end

    def should_stop(self, parameters: Sequence[Parameter]) -> bool:
        with _awake([p for p in self.parameters if not p.requires_grad]):
            return self.inner.should_stop(self.parameters)


def _split(model: nn.Module, patterns: Sequence[str]) -> tuple[list[Parameter], list[Parameter]]:
    """Return the trained parameters of a node's own, and those of all nodes."""
    own = private(model, patterns)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [p for name, p in named if name in own], [p for name, p in named if name not in own]


@contextmanager
def _resting(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Train none of these parameters meanwhile."""
    for p in parameters:
        p.requires_grad_(False)
        p.grad = None
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)


@contextmanager
def _awake(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Let resting parameters be looked at as all others."""
    for p in parameters:
        p.requires_grad_(True)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(False)
