"""A convolution whose answers are averaged, at less than half of the arithmetic."""

from torch import Tensor, nn
from torch.nn import functional as F


class AveragedConv2d(nn.Conv2d):
    """A 3x3 convolution followed by the average over 2x2 answers, as one convolution of stride 2.

    Averaging is a convolution too, so the two are one whose 4x4 kernel is the mean of the 3x3 kernel at four places: 16
    multiply-adds for what took 4 times 9. Parameters, their initialisation and the function are those of
    `nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)` and `nn.AvgPool2d(2)`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The averages."""
        places = ((0, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0))
        first, *others = (F.pad(self.weight, place) for place in places)
        return F.conv2d(x, sum(others, first) / 4, stride=2, padding=1)
