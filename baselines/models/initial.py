"""Initial parameters, where a paper asks for others than torch's own."""

from torch import nn


def kaiming(model: nn.Module) -> None:
    """Draw every weight from N(0, 2 / fan_in) and set every bias to 0 (He et al. 2015), in place.

    Meant for networks with ReLU; normalisation layers keep scale 1 and shift 0.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
