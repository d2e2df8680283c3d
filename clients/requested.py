"""Select the corrections that a message asks for.

A strategy sends a key in the message's configuration; the correction whose ``config_key`` it is acts in that
round. A node knows those listed here and those that its :class:`~clients.Node` is given besides.
"""

from collections.abc import Mapping, Sequence

from .correction import Correction
from .methods.fedcm import ClientMomentum, MimeMomentum
from .methods.feddyn import Dynamic
from .methods.fednova import EffectiveSteps
from .methods.fedproto import PrototypeDistance
from .methods.fedprox import GradientVariance, Proximal
from .methods.ifca import LeastLoss
from .methods.oort import SquaredLoss
from .methods.qfedavg import StartLoss
from .methods.scaffnew import LocalVariate
from .methods.scaffold import ControlVariate

BUILT_IN: tuple[type[Correction], ...] = (  # in the order in which they act
    ControlVariate,
    LocalVariate,
    GradientVariance,
    Proximal,
    Dynamic,
    ClientMomentum,
    MimeMomentum,
    EffectiveSteps,
    StartLoss,
    PrototypeDistance,
    LeastLoss,
    SquaredLoss,
)


def requested_corrections(
    config: Mapping[str, object], known: Sequence[type[Correction]] = BUILT_IN
) -> list[type[Correction]]:
    """Return those of the ``known`` corrections that a message with this configuration asks for."""
    return [kind for kind in known if config.get(kind.config_key)]
