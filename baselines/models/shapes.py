"""What a model says when it is given inputs that it was not made for."""

from baselines.errors import UserError


def image_channels(model: str, input_shape: list[int], *sizes: int) -> int:
    """Return the number of channels of images [C, H, W].

    Parameters
    ----------
    model : its name in ``conf/model``, for the message
    sizes : heights that the model takes, each with a width of the same; none given: any

    Raises
    ------
    UserError : for inputs that are no images, or images of another size
    """
    if len(input_shape) == 3 and (not sizes or input_shape[1:] in [[size, size] for size in sizes]):
        return input_shape[0]
    wanted = "images of " + " or ".join(f"{size}x{size}" for size in sizes) if sizes else "images"
    raise UserError(
        f"model={model} takes {wanted}, but the data set's inputs have shape {tuple(input_shape)}: choose "
        f"model=mlp, which takes any, or a data set of {wanted}"
    )
