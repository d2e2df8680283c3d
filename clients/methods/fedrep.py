"""FedRep: a node first trains its own head under a fixed body, then the shared body under the fixed head.

Collins, Hassani, Mokhtari, Shakkottai: *Exploiting Shared Representations for Personalized Federated
Learning*, ICML 2021 (arXiv 2102.07078), Algorithm 1. With h_k the node's head and phi the body that the
server has sent, the node takes in each round

    h_k   <- h_k - lr grad_h F_k(h_k, phi)              for ``head_epochs`` epochs
    phi_k <- phi_k - lr grad_phi F_k(h_k, phi_k)        for ``client.local_epochs`` epochs

The head is what ``client.private`` names. It stays at the node, which is evaluated with it and the server's
body. Corrections, stragglers and a kept optimiser apply to the body alone. Deviations: a node's first head is
that of the server's first model, as with all private layers; the authors' code trains all heads once more
after the last round. Reduction: ``head_epochs=0`` trains both together: FedPer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import Parameter

from clients.correction import Correction
from clients.examples import Inputs
from clients.fast.trace import Step
from clients.private import select_private
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
        """Refuse a negative or fractional number of epochs."""
        whole = isinstance(self.head_epochs, int) and self.head_epochs >= 0
        require(whole, "client.personal.head_epochs", self.head_epochs, "a whole number, 0 or above")

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        if not split_parameters(model, private)[0]:
            raise ValueError(
                f"client.personal=FedRep trains a node's own layers by themselves, and with client.private="
                f"{list(private)} there are none to train: set client.private=[last]"
            )

    def train(self, update: LocalUpdate) -> dict[str, float]:
        if self.head_epochs == 0:
            return update.run()
        head, body = split_parameters(update.model, update.training.private)
        everything = [p for p in update.model.parameters() if p.requires_grad]
        of_head = replace(
            update,
            training=update.training.with_duration(epochs=self.head_epochs),
            seed=torch_seed(update.seed, Purpose.HEAD),
            corrections=(),
            memory=None,
        )
        with hold_fixed(body):
            of_head.run()
        with hold_fixed(head):
            return replace(
                update, corrections=[PartialCorrection(c, everything) for c in update.corrections]
            ).run()


class PartialCorrection(Correction):
    """A correction made for all parameters, applied while some of them are fixed and have no gradient.

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

    @property
    def replaces_loss(self) -> bool:
        """Whether it replaces the task's loss."""
        return self.inner.replaces_loss

    def replace_loss(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.inner.replace_loss(model, inputs, outputs, targets)

    def wrap_gradient(self, step: Step) -> Step:
        return self.inner.wrap_gradient(step)

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        self.inner.transform_gradients(self.parameters)

    @property
    def can_end_early(self) -> bool:
        """Whether it can end a round before its last step."""
        return self.inner.can_end_early

    def should_stop(self, parameters: Sequence[Parameter]) -> bool:
        with _let_require_gradients([p for p in self.parameters if not p.requires_grad]):
            return self.inner.should_stop(self.parameters)


def split_parameters(model: nn.Module, patterns: Sequence[str]) -> tuple[list[Parameter], list[Parameter]]:
    """Return the trained parameters that match the patterns, and the others."""
    own = select_private(model, patterns)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [p for name, p in named if name in own], [p for name, p in named if name not in own]


@contextmanager
def hold_fixed(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Keep these parameters fixed meanwhile."""
    for p in parameters:
        p.requires_grad_(False)
        p.grad = None
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(True)


@contextmanager
def _let_require_gradients(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Let fixed parameters require gradients meanwhile."""
    for p in parameters:
        p.requires_grad_(True)
    try:
        yield
    finally:
        for p in parameters:
            p.requires_grad_(False)
