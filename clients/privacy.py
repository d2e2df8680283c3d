"""Privacy at the node: its demands, and its own clipping and noise.

A node's configuration may name a demand: ``privacy="local" min-noise=1.0`` trains only where the message
asks for local privacy with a noise multiplier of 1 or more. ``privacy="central"`` also accepts a server that
promises central privacy. See :mod:`strategies.parts.privacy` for the guarantees.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import Tensor, nn

from strategies.shared import protocol
from strategies.shared.arrays import to_float64, values_of
from strategies.shared.seeding import Purpose, torch_seed

SUFFICIENT_KINDS = {protocol.LOCAL: (protocol.LOCAL,), protocol.CENTRAL: (protocol.LOCAL, protocol.CENTRAL)}

MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER = 1e-3, 1e6
DEMAND_KEYS = frozenset({protocol.PRIVACY, protocol.MIN_NOISE})  # keys of a node's own configuration
REQUEST_KEYS = (protocol.PRIVACY_CLIP, protocol.PRIVACY_NOISE, protocol.PRIVACY_SEED)


class PrivacyRefusal(ValueError):
    """The node's demand for privacy is not met."""

    public = "refused by the site: privacy"  # the whole message to the server


def check_demand(node_config: Mapping[str, object], message_config: Mapping[str, object]) -> None:
    """Raise :class:`PrivacyRefusal` where a message promises less than the node's own configuration demands.

    Parameters
    ----------
    node_config : the node's; without ``privacy`` and ``min-noise`` it demands nothing
    message_config : the message's
    """
    if not DEMAND_KEYS & node_config.keys():
        return
    mode = node_config.get(protocol.PRIVACY, protocol.CENTRAL)
    least = node_config.get(protocol.MIN_NOISE, 0.0)
    if mode not in SUFFICIENT_KINDS:
        raise PrivacyRefusal(
            f"this node's configuration has privacy={mode!r}: expected 'local' or 'central'"
        )
    if isinstance(least, bool) or not (isinstance(least, int | float) and least >= 0):
        raise PrivacyRefusal(
            f"this node's configuration has min-noise={least!r}: expected a number, 0 or above"
        )
    kind = message_config.get(protocol.PRIVACY, "none")
    noise = message_config.get(protocol.PRIVACY_NOISE, 0.0)
    enough = is_noise(noise) and noise >= least  # type: ignore[operator]
    if kind not in SUFFICIENT_KINDS[str(mode)] or not enough:
        raise PrivacyRefusal(
            f"this node demands privacy={mode} with noise_multiplier {least:g} or more, above 0; the "
            f"experiment has privacy={kind} with {noise}"
        )
    if kind == protocol.LOCAL and protocol.PRIVACY_SEED in message_config:
        raise PrivacyRefusal(
            "this node demands privacy, and the server knows its noise: privacy.noise_seed=null"
        )


def is_noise(value: object) -> bool:
    """Say whether a noise multiplier can be accounted for: a number from a thousandth to a million."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return MIN_NOISE_MULTIPLIER <= value <= MAX_NOISE_MULTIPLIER


def refuse_evaluation(node_config: Mapping[str, object]) -> None:
    """Raise :class:`PrivacyRefusal` where local privacy is demanded: an evaluation's metrics have no noise."""
    if node_config.get(protocol.PRIVACY) == protocol.LOCAL:
        raise PrivacyRefusal(
            "this node demands privacy=local and does not evaluate: what it would tell has no noise"
        )


def refuse_question(demands: Mapping[str, object]) -> None:
    """Raise :class:`PrivacyRefusal` where any privacy is demanded: an answer has no noise, and decides who trains."""
    if DEMAND_KEYS & demands.keys():
        raise PrivacyRefusal(
            "this node demands privacy and answers no question before a round: it has no noise"
        )


@dataclass(frozen=True)
class LocalNoise:
    """Clips a node's update to norm C and adds N(0, z^2 C^2) to each coordinate.

    Parameters
    ----------
    clip : C
    deviation : z C
    generator : of the noise
    """

    clip: float
    deviation: float
    generator: torch.Generator

    @classmethod
    def from_config(cls, config: ConfigRecord, server_round: int, partition_id: int) -> "LocalNoise | None":
        """Return what a message asks for; None for nothing."""
        if config.get(protocol.PRIVACY) != protocol.LOCAL:
            return None
        clip, z, seed = (config.get(key) for key in REQUEST_KEYS)
        if not (isinstance(clip, float) and isinstance(z, float) and clip > 0 and 0 <= z < float("inf")):
            raise PrivacyRefusal(
                f"local privacy with clip={clip!r} and noise_multiplier={z!r}: expected numbers"
            )
        if not isinstance(seed, int | None):
            raise PrivacyRefusal(f"local privacy with a seed that is no whole number: {seed!r}")
        drawn = secrets.randbits(63)
        if seed is not None:
            place = {"server_round": server_round, "partition_id": partition_id}
            drawn = torch_seed(seed, Purpose.PRIVACY_NOISE, **place)
        return cls(clip, z * clip if z else 0.0, torch.Generator().manual_seed(drawn))

    @torch.no_grad()
    def privatize_(self, model: nn.Module, start: ArrayRecord) -> None:
        """Clip and noise the trained parameters' change from ``start``, in place.

        Raises
        ------
        ValueError : for a model with buffers, which would leave the node without noise
        Refused : for an update without a finite norm
        """
        if name := next((name for name, _ in model.named_buffers() if name in start), None):
            raise ValueError(f"the model's buffer {name!r} would leave this node without noise")
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        before = {name: values_of(start[name]).to(p) for name, p in trained.items()}
        updates = {name: p - before[name] for name, p in trained.items()}
        norm = float(sum(to_float64(update).square().sum() for update in updates.values())) ** 0.5
        if not math.isfinite(norm):  # then it cannot be cut, and the comparison below would not say so
            raise PrivacyRefusal("the update has no finite norm, and cannot be cut to the clip")
        scale = min(1.0, self.clip / norm) if norm else 1.0
        if scale == 1 and self.deviation == 0:
            return  # as it is, bit for bit
        for name, p in trained.items():
            p.copy_(before[name] + self._add_noise(updates[name], scale))

    def _add_noise(self, update: Tensor, scale: float) -> Tensor:
        noise = torch.randn(update.shape, generator=self.generator, dtype=update.dtype)
        return update * scale + noise.to(update.device) * self.deviation
