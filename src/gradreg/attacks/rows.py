"""Which images of a batch the next evaluation is about: rows of all images, and rows of those that are evaluated."""

from torch import Tensor


class Rows:
    """The images that are evaluated, by `index`, and which of them are searched: `active`, None for all of them.

    The others are finished, but the host has not looked yet: what is found for them is neither kept nor shown.
    """

    def __init__(self, images: int, index: Tensor) -> None:
        self.images, self.index = images, index
        self.active: Tensor | None = None

    def take(self, tensor: Tensor) -> Tensor:
        """The rows of the evaluated images, of a tensor with one row per image."""
        return tensor if len(self.index) == len(tensor) else tensor[self.index]

    def only(self, mask: Tensor, times: int = 1) -> Tensor:
        """A mask of the evaluated images, repeated so often, without those that are not searched."""
        return mask if self.active is None else mask & self.active.repeat(times)

    def shown(self, part: Tensor) -> Tensor:
        """What an attack sees: rows of all images, 0 for those that are not searched."""
        if self.active is not None:
            part = part.where(self.active.view(-1, *[1] * (part.ndim - 1)), 0)
        return self.spread(part)

    def spread(self, part: Tensor, onto: Tensor | None = None) -> Tensor:
        """Rows of the evaluated images, scattered into rows of all images: into `onto`, or into zeros."""
        if len(part) == self.images:
            return part
        onto = part.new_zeros(self.images, *part.shape[1:]) if onto is None else onto
        return onto.index_copy(0, self.index, part)
