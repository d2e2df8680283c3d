"""Compressing: nodes send their updates in fewer bytes, where the strategy asks for it."""

from dataclasses import dataclass

from flwr.app import ConfigScalar

from strategies.shared.compression import Compression, NoCompression

from .keeping import Keeping


@dataclass(kw_only=True, eq=False)
class Compressing(Keeping):
    """Attendance of nodes that may compress what they send.

    Parameters
    ----------
    compression : of each node's update (:mod:`strategies.shared.compression`)
    """

    compression: Compression = NoCompression()

    @property
    def nodes_remember(self) -> bool:
        """Where error feedback does."""
        return self.compression.error_feedback

    def unproved(self) -> str:
        """Name what nodes are asked to do and no reply shows; empty for nothing."""
        compressed = not isinstance(self.compression, NoCompression)
        return f"compression={type(self.compression).__name__}" if compressed else ""

    def asks(self) -> dict[str, ConfigScalar]:
        return super().asks() | self.compression.asks()
