"""Private parameters: layers that stay at their node.

All others are shared. Patterns choose what is private:

* ``last``, the last layer with parameters: FedPer with one personalised layer (Arivazhagan et al., *Federated
  Learning with Personalization Layers*, 2019, section 3);
* ``body``, all other layers: LG-FedAvg with one shared layer (Liang, Liu, Liu, Salakhutdinov, Morency, *Think
  Locally, Act Globally: Federated Learning with Local and Global Representations*, 2020, arXiv 2001.01523);
* ``*Norm*``, layers by class, with their running statistics: FedBN (Li et al., *FedBN: Federated Learning on
  Non-IID Features via Local Batch Normalization*, ICLR 2021, Algorithm 1);
* ``fc1.*``, parameters and buffers by name.

A node starts from the private values that the server sends first, and keeps those it has trained in Flower's
``context.state``. It sends the server's back unchanged, so they never move there (noise for privacy, and
FedMeta's step on the server, are refused). So only a node has the whole model, and nodes must evaluate it.
Deviations: the values that are sent back cost bytes, which FedPer saves. FedPer's nodes draw their first
private layers themselves, here these are the same. LG-FedAvg's experiments start from a model that FedAvg
has trained.
Reduction: without a pattern it is the strategy.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor, nn

from strategies.shared.arrays import to_array_record, values_of

STATE_KEY = "private"  # ArrayRecord of a node's state
LAST_LAYER = "last"
BODY = "body"


def select_private(model: nn.Module, patterns: Sequence[str]) -> dict[str, Tensor]:
    """Return the model's private parameters and buffers by name."""
    if not patterns:
        return {}
    state = model.state_dict()
    last = next((n for n, m in reversed([*model.named_modules()]) if [*m.parameters(recurse=False)]), None)
    layers = {name: name.rpartition(".")[0] for name in state}
    kinds = {name: type(model.get_submodule(layer)).__name__ for name, layer in layers.items()}

    def chosen(name: str, pattern: str) -> bool:
        if pattern in (LAST_LAYER, BODY):
            return (layers[name] == last) == (pattern == LAST_LAYER)
        return fnmatchcase(name, pattern) or fnmatchcase(kinds[name], pattern)

    return {name: tensor for name, tensor in state.items() if any(chosen(name, p) for p in patterns)}


def check_patterns(model: nn.Module, patterns: Sequence[str]) -> None:
    """Raise ``ValueError`` for a pattern that nothing matches, and patterns that leave nothing to share."""
    for pattern in patterns:
        if not select_private(model, [pattern]):
            known = ", ".join(model.state_dict())
            raise ValueError(
                f"client.private: {pattern!r} is no parameter, buffer or class of a layer: expected "
                f"last, body, *Norm*, or a pattern of these: {known[:200]}"
            )
    if patterns and all(name in select_private(model, patterns) for name, _ in model.named_parameters()):
        raise ValueError(
            f"client.private={list(patterns)} leaves no parameter to share: choose fewer, or strategy=local"
        )


@torch.no_grad()
def restore(model: nn.Module, patterns: Sequence[str], state: RecordDict) -> None:
    """Put the private values that a node keeps, if any, into the model that the server has sent."""
    if not patterns or STATE_KEY not in state.array_records:
        return
    saved = state.array_records[STATE_KEY]
    for name, tensor in select_private(model, patterns).items():
        tensor.copy_(values_of(saved[name]))


@torch.no_grad()
def withhold(model: nn.Module, patterns: Sequence[str], sent: ArrayRecord, state: RecordDict) -> None:
    """Keep the model's private values in the node's state, and put in their place what the server sent."""
    if not patterns:
        return
    mine = select_private(model, patterns)
    state[STATE_KEY] = to_array_record({name: tensor.clone() for name, tensor in mine.items()})
    for name, tensor in mine.items():
        tensor.copy_(values_of(sent[name]))
