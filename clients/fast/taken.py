"""Taken: how this process has computed its gradients.

An eager step is launched operation by operation, a recorded one replayed without autograd, a captured one
replayed as one graph of the accelerator's. A step of batched nodes counts once.
"""

from collections import Counter

EAGER, RECORDED, CAPTURED = "eager", "recorded", "captured"
_taken: Counter[str] = Counter({EAGER: 0, RECORDED: 0, CAPTURED: 0})


def note(way: str) -> None:
    """Count a step."""
    _taken[way] += 1


def steps() -> dict[str, int]:
    """Return how many steps were taken in each way since the process began."""
    return dict(_taken)


def since(before: dict[str, int]) -> dict[str, int]:
    """Return how many were taken in each way after :func:`steps` returned ``before``."""
    return {way: count - before[way] for way, count in _taken.items()}
