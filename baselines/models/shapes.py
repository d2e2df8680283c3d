"""Checks of input shapes and initial parameters, shared by the models."""

from torch import nn

from baselines.errors import UserError


def image_channels(model: str, input_shape: list[int], *sizes: int) -> int:
    """Return the number of channels of images [C, H, W].

    Parameters
    ----------
    model : its name in ``conf/model``, for the message
    sizes : heights, equal to widths, that the model takes; without any: all sizes

    Raises
    ------
    UserError : for inputs that are not images, or of another size
    """
    if len(input_shape) == 3 and (not sizes or input_shape[1:] in [[size, size] for size in sizes]):
        return input_shape[0]
    expected = "images of " + " or ".join(f"{size}x{size}" for size in sizes) if sizes else "images"
    raise UserError(
        f"model={model} takes {expected}, but the data set's inputs have shape {tuple(input_shape)}: choose "
        f"model=mlp, which takes any, or a data set of {expected}"
    )


def text_length(model: str, input_shape: list[int]) -> int:
    """Return the number of tokens of texts [T]; ``model`` and errors as of :func:`image_channels`."""
    if len(input_shape) == 1:
        return input_shape[0]
    raise UserError(
        f"model={model} takes texts, but the data set's inputs have shape {tuple(input_shape)}: choose another "
        "model, e.g. model=mlp, or dataset=text"
    )


# Initial parameters, for papers that state others than torch's defaults.


def kaiming(model: nn.Module) -> None:
    """Draw every weight from N(0, 2 / fan_in) and set every bias to 0 (He et al. 2015), in place.

    Meant for networks with ReLU; normalisation layers keep scale 1 and shift 0.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
