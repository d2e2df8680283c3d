import pytest
import torch

from clients.augment import Augment


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> torch.Tensor:
    """64 images [2, 8, 8] whose values tell image, channel, row and column apart, none of them 0."""
    return torch.arange(1.0, 64 * 2 * 8 * 8 + 1).view(64, 2, 8, 8)


def test_nothing_asked_changes_nothing(images: torch.Tensor) -> None:
    assert Augment()(images, generator()) is images


def test_flip_mirrors_about_half_of_the_images_as_a_whole(images: torch.Tensor) -> None:
    out = Augment(flip=True)(images, generator())
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(out, images, strict=True)]
    kept = [torch.equal(a, b) for a, b in zip(out, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 16 < sum(mirrored) < 48


def test_crop_moves_each_image_by_its_own_offset(images: torch.Tensor) -> None:
    padding = 3
    out = Augment(padding=padding)(images, generator())
    offsets = set()
    for moved, image in zip(out, images, strict=True):
        wide = torch.nn.functional.pad(image, [padding] * 4)
        matches = [
            (y, x)
            for y in range(2 * padding + 1)
            for x in range(2 * padding + 1)
            if torch.equal(moved, wide[:, y : y + 8, x : x + 8])
        ]
        assert len(matches) == 1  # both channels together
        offsets.add(matches[0])
    assert {y for y, _ in offsets} == {x for _, x in offsets} == set(range(7))


def test_cutout_blanks_a_square_around_a_place_in_the_image(images: torch.Tensor) -> None:
    out = Augment(cutout=4)(images, generator())
    centres = set()
    for cut, image in zip(out, images, strict=True):
        hole = cut[0] == 0
        assert torch.equal(hole, cut[1] == 0)
        assert torch.equal(cut[:, ~hole], image[:, ~hole])
        rows, columns = hole.any(1).nonzero().flatten(), hole.any(0).nonzero().flatten()
        assert len(rows) * len(columns) == hole.sum()  # a rectangle
        assert 2 <= len(rows) <= 4
        assert 2 <= len(columns) <= 4
        centres.add((int(rows[0]), int(columns[0])))
    assert len(centres) > 20
    assert (out == 0).any()
    assert not (images == 0).any()  # the input is as it was


def test_a_hole_may_cover_everything() -> None:
    assert not Augment(cutout=16)(torch.ones(4, 3, 8, 8), generator()).any()


def test_the_generator_decides(images: torch.Tensor) -> None:
    augment = Augment(padding=2, flip=True, cutout=3)
    assert torch.equal(augment(images, generator(1)), augment(images, generator(1)))
    assert not torch.equal(augment(images, generator(1)), augment(images, generator(2)))
    one = generator(1)
    assert not torch.equal(augment(images, one), augment(images, one))


def test_keeps_shape_type_and_memory_layout(images: torch.Tensor) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        out = Augment(padding=4, flip=True, cutout=2)(images.to(dtype), generator())
        assert out.dtype == dtype
        assert out.shape == images.shape
        assert out.is_contiguous()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_every_device_draws_alike(images: torch.Tensor) -> None:
    augment = Augment(padding=2, flip=True, cutout=3)
    assert torch.equal(augment(images.cuda(), generator()).cpu(), augment(images, generator()))


@pytest.mark.parametrize("name", ["padding", "cutout"])
def test_negative_sizes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"augment.{name}=-1 is out of range"):
        Augment(**{name: -1})
