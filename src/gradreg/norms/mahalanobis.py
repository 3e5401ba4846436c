"""A norm that knows which pixels change together."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from gradreg.errors import ConfigError
from gradreg.norms.base import Radius
from gradreg.norms.identity import digest
from gradreg.norms.linear import LinearImage
from gradreg.norms.lp import L2
from gradreg.norms.projections import ellipsoid
from gradreg.norms.tensors import Placed, check_parameter, per_image, scaled
from gradreg.precision import at_least_single

_L2 = L2()
# Of the largest entry: a matrix that is less symmetric than this was not meant to be.
_SYMMETRIC = 1e-5


class Mahalanobis(LinearImage):
    """√(vᵀMv) for a symmetric positive definite M; the dual is √(gᵀM⁻¹g), by which Roth et al. (2018) penalise.

    `matrix` is one of
      (D, D), for the D pixels of a flattened image;
      (C, C), for the C channels of every pixel, the same everywhere;
      (C, P, P), for the P pixels of each of the C channels.
    With M = LLᵀ it is the l2 norm of Lᵀv, so its ball is a linear image of the l2 ball, and so are its samples.
    """

    def __init__(
        self,
        matrix: Any,
        *,
        symbol: str = "Mahalanobis",
        usual_radii: tuple[float, ...] = (),
        reach: float | None = None,
    ) -> None:
        found = check_parameter("matrix", matrix)
        if found.ndim not in (2, 3) or found.shape[-1] != found.shape[-2] or not found.numel():
            raise ConfigError(
                f"matrix must be square, of shape (D, D), (C, C) or (C, P, P); got shape {tuple(found.shape)}."
            )
        size = float(found.abs().max())
        if float((found - found.mT).abs().max()) > _SYMMETRIC * size:
            raise ConfigError("matrix must be symmetric; use (matrix + matrix.T) / 2 if it should be.")
        found = (found + found.mT) / 2
        factor, failed = torch.linalg.cholesky_ex(found)
        if bool(failed.any()):
            raise ConfigError(
                "matrix must be positive definite; its smallest eigenvalue is "
                f"{float(torch.linalg.eigvalsh(found).min()):.3g}. Add a small multiple of the identity."
            )
        super().__init__(_L2, symbol, usual_radii, reach)
        self._shape, self._digest = tuple(found.shape), digest(found)
        self._blocks = found if found.ndim == 3 else found[None]
        self._factor = Placed(factor if factor.ndim == 3 else factor[None])
        self._spectrum: tuple[Placed, Placed] | None = None

    @classmethod
    def of_covariance(cls, covariance: Any, **shown: Any) -> "Mahalanobis":
        """The norm √(vᵀΣ⁻¹v) of perturbations with that covariance; the dual, which is penalised, is √(gᵀΣg)."""
        given = check_parameter("covariance", covariance)
        checked = cls(given)
        return cls(torch.cholesky_inverse(checked._factor.tensor).view(given.shape), **shown)

    @property
    def matrix(self) -> Tensor:
        """M, in double precision, on the CPU."""
        return self._blocks.view(self._shape)

    def parameters(self) -> Mapping[str, object]:
        return {"matrix": self._digest}

    def forward(self, v: Tensor) -> Tensor:
        """Lᵀv, in full precision under autocast too."""
        with torch.autocast(v.device.type, enabled=False):
            return self._images(self._factor.like(v).mT @ self._rows(v), v)

    def gradient(self, g: Tensor) -> Tensor:
        """L⁻¹g."""
        return self._images(torch.linalg.solve_triangular(self._factor.like(g), self._rows(g), upper=False), g)

    def backward(self, u: Tensor) -> Tensor:
        """L⁻ᵀu."""
        return self._images(torch.linalg.solve_triangular(self._factor.like(u).mT, self._rows(u), upper=True), u)

    def project(self, v: Tensor, radius: Radius) -> Tensor:
        axes, vectors = (part.like(v) for part in self._eigen())
        size, unit = scaled(v)
        rows = self._rows(unit)
        with torch.autocast(v.device.type, enabled=False):
            along = self._images(vectors.mT @ rows, v).flatten(1)
            spread = self._images(axes[:, :, None].expand_as(rows), v).flatten(1)
            near = ellipsoid(along, spread, (per_image(radius, unit) / size).flatten()).view_as(v)
            return (self._images(vectors @ self._rows(near), v) * size).to(v.dtype)

    def _rows(self, v: Tensor) -> Tensor:
        """The images as columns that the matrices multiply: (blocks, K, columns)."""
        blocks, size, columns = self._layout(v)
        wide = v.to(at_least_single(v.dtype)).reshape(len(v), blocks, size, columns)
        return wide.permute(1, 2, 0, 3).reshape(blocks, size, len(v) * columns)

    def _images(self, rows: Tensor, like: Tensor) -> Tensor:
        blocks, size, columns = self._layout(like)
        return rows.reshape(blocks, size, len(like), columns).permute(2, 0, 1, 3).reshape(like.shape)

    def _layout(self, v: Tensor) -> tuple[int, int, int]:
        """Blocks, their size, and how many columns of an image each block multiplies."""
        shape, pixels = tuple(v.shape[1:]), prod(v.shape[1:])
        blocks, size = self._blocks.shape[:2]
        if blocks * size == pixels and (blocks == 1 or blocks == shape[0]):
            return blocks, size, 1
        if blocks == 1 and shape and size == shape[0]:
            return 1, size, pixels // size
        raise ConfigError(
            f"matrix must be of the {pixels} pixels of an image of shape {shape}, of its channels, or of each "
            f"channel's pixels; got shape {self._shape}."
        )

    def _eigen(self) -> tuple[Placed, Placed]:
        """Only the Euclidean projection needs it, and it takes long, so it waits until then."""
        if self._spectrum is None:
            values, vectors = torch.linalg.eigh(self._blocks)
            self._spectrum = Placed(values), Placed(vectors)
        return self._spectrum
