"""The largest eigenvalue of many symmetric matrices at once, each known only by its products with vectors."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_count, check_number, shown
from gradreg.checks.tensors import check_batch, on_host
from gradreg.errors import DataError

_BREAKDOWN = 1e-6  # of the matrix's size: what is left of a vector then is rounding
_CHECK_EVERY = 4  # the small eigenproblems cost more than a product otherwise


@dataclass(frozen=True)
class Eigenvalues:
    """The largest eigenvalue of each matrix; some eigenvalue lies within `residual` of it."""

    value: Tensor
    residual: Tensor
    converged: Tensor
    products: Tensor
    """Products with the matrix until it was known."""


@validated
def largest_eigenvalue(
    product: Callable[[Tensor], Tensor], start: Tensor, *, steps: int = 50, tolerance: float = 1e-3
) -> Eigenvalues:
    """Lanczos' method with full reorthogonalisation; `product` maps rows v_i to A_i v_i, `start` is (matrices, size).

    A matrix is done when the residual β|s| of its largest Ritz pair is below `tolerance` times the largest Ritz value
    in size, or when its Krylov space is exhausted, as for a zero matrix; the Ritz value is then exact if the start
    meets the leading eigenspace, as a random one does. Without reorthogonalisation eigenvalues come back as ghosts.
    """
    steps, tolerance = check_count("steps", steps), check_number("tolerance", tolerance, above=0)
    if check_batch(start, "start").ndim != 2:
        raise DataError(f"start must be of shape (matrices, size); got {shown(start)}.")
    if on_host(start) and not bool(start.isfinite().all()):
        raise DataError(f"start must hold finite numbers; got NaN or inf in {shown(start)}.")
    matrices, size = start.shape
    steps = min(steps, size)
    basis = start.new_zeros(matrices, steps, size)
    diagonal, beside = torch.zeros(2, matrices, steps, dtype=torch.float64, device=start.device).unbind()
    value, residual = torch.full((2, matrices), torch.inf, dtype=torch.float64, device=start.device).unbind()
    products = torch.zeros(matrices, dtype=torch.int64, device=start.device)
    active = torch.ones(matrices, dtype=torch.bool, device=start.device)
    q = start / torch.linalg.vector_norm(start, dim=1, keepdim=True)
    for k in range(steps):
        basis[:, k] = q
        image = product(q)
        diagonal[:, k] = (q * image).sum(1)
        rest = image
        for _ in range(2):  # once leaves rounding behind, twice is enough
            inner = torch.einsum("mkd,md->mk", basis[:, : k + 1], rest)
            rest = rest - torch.einsum("mkd,mk->md", basis[:, : k + 1], inner)
        beta = torch.linalg.vector_norm(rest, dim=1)
        beside[:, k] = beta
        scale = torch.maximum(diagonal.abs().amax(1), beside[:, :k].amax(1) if k else diagonal[:, 0].abs())
        exhausted = beta <= _BREAKDOWN * scale
        last = k == steps - 1
        if last or (k + 1) % _CHECK_EVERY == 0 or bool((exhausted & active).any()):
            ritz, error, largest = _ritz(diagonal[:, : k + 1], beside[:, : k + 1])
            error = error.where(~exhausted, 0)
            value, residual = value.where(~active, ritz), residual.where(~active, error)
            products = products.where(~active, k + 1)
            active = active & ~exhausted & (error > tolerance * largest) & (k + 1 < size)
            if not bool(active.any()):
                break
        q = rest / beta.where(beta > 0, 1)[:, None]
    return Eigenvalues(value, residual, ~active, products)


def _ritz(diagonal: Tensor, beside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Largest Ritz value, its residual β_k |last entry of its vector|, and the largest Ritz value in size."""
    tridiagonal = torch.diag_embed(diagonal)
    if diagonal.shape[1] > 1:
        off = beside[:, :-1]
        tridiagonal = tridiagonal + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    return values[:, -1], beside[:, -1] * vectors[:, -1, -1].abs(), values.abs().amax(1)
