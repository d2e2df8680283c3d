"""What an image becomes, pixel by pixel, for every draw there can be."""

import torch
from torch.nn.functional import pad

from clients.augment import Augment

HEIGHT, WIDTH = 4, 6


def image() -> torch.Tensor:
    return torch.arange(1.0, 2 * HEIGHT * WIDTH + 1).view(2, HEIGHT, WIDTH)


def changed(augment: Augment, count: int = 600) -> set[bytes]:
    """Return the different images that come of one."""
    out = augment(image().expand(count, 2, HEIGHT, WIDTH).contiguous(), torch.Generator().manual_seed(0))
    return {each.numpy().tobytes() for each in out}


def test_every_window_of_the_padded_image_mirrored_or_not() -> None:
    wide = pad(image(), [2] * 4)
    windows = [wide[:, y : y + HEIGHT, x : x + WIDTH] for y in range(5) for x in range(5)]
    both = [*windows, *(window.flip(-1) for window in windows)]
    actual = changed(Augment(padding=2, flip=True))
    assert actual == {each.contiguous().numpy().tobytes() for each in both}
    assert changed(Augment(padding=2)) == {each.contiguous().numpy().tobytes() for each in windows}


def holes(side: int) -> set[bytes]:
    """Return the image with a square hole around each of its pixels."""
    offsets = set()
    for y in range(HEIGHT):
        for x in range(WIDTH):
            cut = image()
            top, left = y - side // 2, x - side // 2
            cut[:, max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = 0
            offsets.add(cut.numpy().tobytes())
    return offsets


def test_a_hole_around_every_pixel() -> None:
    for side in (1, 2, 3):
        assert changed(Augment(cutout=side)) == holes(side)
