"""ResNet-18 for small images: torchvision's with another stem.

He, Zhang, Ren, Sun: *Deep Residual Learning for Image Recognition*, 2016. For 32x32 images the stem is a
3x3 convolution of stride 1 without max pooling, as in their section 4.2.
"""

from functools import partial

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from baselines.errors import UserError

from .shapes import image_channels


class ResNet18(ResNet):
    """ResNet-18 with 11,173,962 parameters for three channels and ten classes.

    Parameters
    ----------
    groups : GroupNorm's number of groups (Wu and He 2018), a divisor of 64; None for BatchNorm
    """

    def __init__(self, input_shape: list[int], num_classes: int, groups: int | None) -> None:
        channels = image_channels("resnet18", input_shape)
        if groups is not None and (groups < 1 or 64 % groups):
            raise UserError(
                f"model.groups={groups}: expected a divisor of 64, the fewest channels of a layer, or null "
                "for batch normalisation"
            )
        norm = nn.BatchNorm2d if groups is None else partial(nn.GroupNorm, groups)
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes, norm_layer=norm)
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")  # as the others
        self.maxpool = nn.Identity()
