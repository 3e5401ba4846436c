"""Norms as a user would write them, with the six methods and nothing else."""

import torch
from scipy.special import gammaincinv
from torch import Tensor

from gradreg.norms import Mahalanobis, Pixelwise, Threat, Weighted, per_image
from gradreg.norms.base import Radius

SHAPE = (3, 4, 4)


def _lp(v: Tensor, p: float) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(v, ord=p, dim=-1)
    return length


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(*values.shape, *[1] * (like.ndim - 2))


class ThreeHalves(Threat):
    """l_{3/2}, dual to l_3: smooth and strictly convex."""

    def norm(self, v: Tensor) -> Tensor:
        return _lp(v.flatten(1), 1.5)

    def dual_norm(self, g: Tensor) -> Tensor:
        return _lp(g.flatten(1), 3)

    def ascent(self, g: Tensor) -> Tensor:
        slope = per_image(self.dual_norm(g), g)
        share = g / slope.where(slope > 0, 1)
        return (share.sign() * share.square()).to(g.dtype)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        """z + λ√z = |v| for every pixel, with λ by bisection."""
        size = v.flatten(1).abs().double()
        limit = per_image(radius, v).double().reshape(-1, 1)

        def shrunk(multiplier: Tensor) -> Tensor:
            return (((multiplier.square() + 4 * size).sqrt() - multiplier) / 2).square()

        low, high = torch.zeros_like(limit.expand(len(v), 1)), size.sum(1, keepdim=True) + 1
        for _ in range(12):
            high = torch.where(self.norm(shrunk(high))[:, None] > limit, 8 * high, high)
        for _ in range(60):
            middle = (low + high) / 2
            outside = self.norm(shrunk(middle))[:, None] > limit
            low, high = torch.where(outside, middle, low), torch.where(outside, high, middle)
        inside = self.norm(size)[:, None] <= limit
        return (torch.where(inside, size, shrunk(high)).view_as(v) * v.sign()).to(v.dtype)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """exp(−|t|^{3/2}) in every pixel and one exponential beside them, over their common length (Barthe et al.)."""
        luck = torch.rand(like.shape, generator=generator, dtype=torch.float64)
        powers = torch.from_numpy(gammaincinv(2 / 3, luck.numpy()))
        signs = torch.where(torch.rand(like.shape, generator=generator) < 0.5, -1.0, 1.0).double()
        slack = -torch.rand(len(like), generator=generator, dtype=torch.float64).log()
        length = (powers.flatten(1).sum(1) + slack) ** (2 / 3)
        drawn = signs * powers ** (2 / 3) / per_image(length, powers)
        return (drawn * per_image(radius, drawn)).to(like.dtype)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        inside = self.sample(like, 1.0, generator)
        return (inside / per_image(self.norm(inside), inside) * per_image(radius, like)).to(like.dtype)


class SumOfChannels(Threat):
    """The l2 norms of all channels, added up; dual to the largest of them: it has kinks, as l1 has."""

    symbol = "Σl2"

    def norm(self, v: Tensor) -> Tensor:
        return _lp(v.flatten(2), 2).sum(1)

    def dual_norm(self, g: Tensor) -> Tensor:
        return _lp(g.flatten(2), 2).amax(1)

    def ascent(self, g: Tensor) -> Tensor:
        length = _lp(g.flatten(2), 2)
        longest = torch.zeros_like(length).scatter(1, length.argmax(1, keepdim=True), 1)
        share = longest / length.where(length > 0, 1) * (length > 0)
        return g * _per_channel(share, g)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        """Every channel is shortened by the same θ, as entries are in l1."""
        length = _lp(v.flatten(2), 2)
        limit = per_image(radius, v).reshape(-1, 1)
        longest = length.sort(dim=1, descending=True).values
        thetas = (longest.cumsum(1) - limit) / torch.arange(1, length.shape[1] + 1, device=v.device)
        kept = (longest > thetas).sum(1, keepdim=True).clamp(min=1)
        theta = thetas.gather(1, kept - 1).clamp(min=0)
        share = ((length - theta).clamp(min=0) / length.where(length > 0, 1)).to(v.dtype)
        return v * _per_channel(share, v)

    def sample(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        """Lengths by the Dirichlet distribution (Gamma(P) is a sum of P exponentials), directions at random."""
        pixels = like[0, 0].numel()
        normal = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        length = -torch.rand(*like.shape[:2], pixels, generator=generator, dtype=torch.float64).log().sum(2)
        slack = -torch.rand(len(like), 1, generator=generator, dtype=torch.float64).log()
        share = length / (length.sum(1, keepdim=True) + slack) / _lp(normal.flatten(2), 2)
        return (normal * _per_channel(share, like) * per_image(radius, normal)).to(like.dtype)

    def sample_surface(self, like: Tensor, radius: Radius, generator: torch.Generator) -> Tensor:
        inside = self.sample(like, 1.0, generator)
        return (inside / per_image(self.norm(inside), inside) * per_image(radius, like)).to(like.dtype)


def weights(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    """Positive, the largest about thirty times the smallest."""
    return (0.8 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).exp()


def matrix(size: int, seed: int = 0) -> Tensor:
    """Symmetric and positive definite, with a condition of about fifty."""
    normal = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return normal @ normal.T / size + 0.1 * torch.eye(size, dtype=torch.float64)


def own_norms(shape: tuple[int, ...] = SHAPE) -> dict[str, Threat]:
    """Every kind of norm that has no short name, for images of that shape."""
    pixels = torch.Size(shape).numel()
    blocks = torch.stack([matrix(pixels // shape[0], seed) for seed in range(shape[0])])
    return {
        "weighted l2": Weighted("l2", weights(shape)),
        "weighted linf": Weighted("linf", weights(shape)),
        "weighted l1": Weighted("l1", weights(shape)),
        "weighted channels": Weighted("linf", torch.arange(1.0, shape[0] + 1).view(-1, *[1] * (len(shape) - 1))),
        "weighted weighted": Weighted(Weighted("l1", weights(shape)), weights(shape, seed=1)),
        "weighted pixels": Weighted(Pixelwise(), weights(shape)),
        "weighted own": Weighted(ThreeHalves(), weights(shape).sqrt()),
        "mahalanobis": Mahalanobis(matrix(pixels)),
        "mahalanobis of colours": Mahalanobis(matrix(shape[0])),
        "mahalanobis of each channel": Mahalanobis(blocks),
        "pixelwise": Pixelwise(),
        "three halves": ThreeHalves(),
        "sum of channels": SumOfChannels(),
    }
