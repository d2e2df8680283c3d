"""Wrapping: Flower's strategies of differential privacy around one of this package's.

They clip the nodes' models before ``aggregate_train`` and add noise to what it returns, as much as a mean
needs. A step that is longer, or is made of the clipped updates in another way, is not covered by it.
"""

import sys
from types import FrameType

from flwr.serverapp import strategy as flower

WRAPPERS = (
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)


def require_covered(strategy: object, beyond: str) -> None:
    """Raise ``ValueError`` where a wrapper of Flower's calls a strategy that its noise does not cover.

    To be called in a hook of Flower's. ``beyond`` names what is more than a plain mean; empty for nothing.
    """
    wrapper = _caller(strategy) if beyond else None
    if isinstance(wrapper, WRAPPERS):
        raise ValueError(
            f"{type(wrapper).__name__} adds the noise of a mean, which does not cover {beyond} of "
            f"{type(strategy).__name__}: choose FedAvg, or privacy=CentralPrivacy(...) without the wrapper"
        )


def _caller(strategy: object) -> object:
    """Return the object whose method calls one of the strategy's; it holds no reference to it itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame is not None and frame.f_locals.get("self") is strategy:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")
