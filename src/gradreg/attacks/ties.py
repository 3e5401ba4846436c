"""Points that an attack walks over where the label is level with a rival: errors too, but not to be trusted at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.norms import per_image


@dataclass
class Ties:
    """The nearest tie known of each image, inf where there is none, and the attack that met it."""

    distance: Tensor
    points: Tensor
    attack: Tensor

    @classmethod
    def none(cls, x: Tensor, distance: Tensor) -> "Ties":
        """No tie so far."""
        nowhere = torch.full_like(distance, torch.inf)
        return cls(nowhere, x.clone(), torch.full_like(distance, -1, dtype=torch.int64))

    def record(self, rows: Tensor, points: Tensor, distance: Tensor, attack: int) -> None:
        """Take what is nearer, of points with one row per image; a distance of inf is no tie."""
        known = self.distance[rows]
        nearer = distance < known
        self.distance[rows] = torch.where(nearer, distance, known)
        self.points[rows] = torch.where(per_image(nearer, points).bool(), points, self.points[rows])
        self.attack[rows] = self.attack[rows].masked_fill(nearer, attack)
