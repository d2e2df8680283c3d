"""What a model says when it is given inputs that it was not made for."""

from baselines.errors import UserError


def image_channels(model: str, input_shape: list[int], size: int | None = None) -> int:
    """Return the number of channels of images [C, H, W].

    Parameters
    ----------
    model : its name in ``conf/model``, for the message
    size : the height and width that the model needs; None when it takes any

    Raises
    ------
    UserError : for inputs that are no images, or images of another size
    """
    if len(input_shape) == 3 and (size is None or input_shape[1:] == [size, size]):
        return input_shape[0]
    wanted = "images" if size is None else f"images of {size}x{size}"
    raise UserError(
        f"model={model} takes {wanted}, but the data set's inputs have shape {tuple(input_shape)}: choose "
        f"model=mlp, which takes any, or a data set of {wanted}"
    )
