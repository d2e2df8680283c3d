"""Client optimisers that torch does not have. AdamP is timm's: ``conf/client/adamp.yaml``."""

from .rmsgd import RMSGD

__all__ = ["RMSGD"]
