"""A data set from a folder of images, with a folder for each class."""

from torch.utils.data import Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from baselines.datasets import Dataset, from_torch
from clients import Normalize


def pictures(
    path: str, size: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the images, every fifth for testing; read batch by batch."""
    images = ImageFolder(
        path, v2.Compose([v2.PILToTensor(), v2.Resize((size, size))])
    )
    train = Subset(images, [row for row in range(len(images)) if row % 5])
    test = Subset(images, range(0, len(images), 5))
    return from_torch(train, test, transform=Normalize(tuple(mean), tuple(std)))
