"""Largest eigenvalues against torch's own, for spectra on which simpler methods fail."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gradreg.bounds import largest_eigenvalue
from gradreg.errors import ConfigError

SIZE = 40
SPECTRA = {
    "spread": torch.linspace(-3, 5, SIZE),
    "repeated": torch.cat([torch.full((SIZE // 2,), 2.0), torch.full((SIZE - SIZE // 2,), -1.0)]),
    "zero": torch.zeros(SIZE),
    "identity": torch.ones(SIZE),
    "one": torch.cat([torch.tensor([7.0]), torch.zeros(SIZE - 1)]),
    "negative": -torch.linspace(1, 2, SIZE),
    "close": torch.cat([torch.tensor([1.0, 0.999]), torch.linspace(-0.9, 0.9, SIZE - 2)]),
    "tiny": 1e-20 * torch.linspace(-3, 5, SIZE),
}


def matrices() -> tuple[Tensor, Tensor]:
    """One of each spectrum, in a random basis."""
    values = torch.stack(list(SPECTRA.values())).double()
    turns = torch.linalg.qr(torch.randn(len(values), SIZE, SIZE, dtype=torch.float64))[0]
    return turns @ torch.diag_embed(values) @ turns.mT, values.amax(1)


def test_all_spectra_at_once() -> None:
    matrix, exact = matrices()
    start = torch.randn(len(matrix), SIZE, dtype=torch.float64)
    found = largest_eigenvalue(lambda v: torch.einsum("mij,mj->mi", matrix, v), start, tolerance=1e-10)
    assert_close(found.value, exact, rtol=1e-9, atol=1e-12)
    assert bool(found.converged.all())
    few = dict(zip(SPECTRA, found.products.tolist(), strict=True))
    assert (few["zero"], few["identity"], few["one"], few["repeated"]) == (1, 1, 2, 2)


def test_the_stopping_rule_means_what_it_says() -> None:
    """An eigenvalue lies within the residual of the answer, whenever it stopped."""
    matrix, _ = matrices()
    eigenvalues = torch.linalg.eigvalsh(matrix)
    start = torch.randn(len(matrix), SIZE, dtype=torch.float64)
    for steps in (1, 2, 3, 5, 8, 12, 30):
        found = largest_eigenvalue(lambda v: torch.einsum("mij,mj->mi", matrix, v), start, steps=steps, tolerance=1e-3)
        nearest = (eigenvalues - found.value[:, None]).abs().amin(1)
        assert bool((nearest <= found.residual + 1e-9).all())
        size = eigenvalues.abs().amax(1)
        assert bool((found.residual <= 1e-3 * size + 1e-12)[found.converged].all())
        assert bool((found.value <= eigenvalues.amax(1) + 1e-9).all())
    loose = largest_eigenvalue(lambda v: torch.einsum("mij,mj->mi", matrix, v), start, steps=3, tolerance=1e-9)
    assert not loose.converged[0]


def test_rows_do_not_disturb_each_other() -> None:
    matrix, _ = matrices()
    start = torch.randn(len(matrix), SIZE, dtype=torch.float64)
    together = largest_eigenvalue(lambda v: torch.einsum("mij,mj->mi", matrix, v), start, tolerance=1e-6)
    for row in range(len(matrix)):
        alone = largest_eigenvalue(lambda v, m=matrix[row]: v @ m, start[row : row + 1], tolerance=1e-6)  # type: ignore[misc]
        assert_close(alone.value[0], together.value[row], rtol=1e-6, atol=1e-12)


def test_no_ghosts_in_single_precision() -> None:
    """One dominant eigenvalue and many steps: without reorthogonalisation rounding brings it back as a copy."""
    values = torch.cat([torch.tensor([100.0]), torch.rand(199)])
    start = torch.randn(1, 200)
    found = largest_eigenvalue(lambda v: v * values, start, steps=150, tolerance=1e-7)
    assert_close(found.value, torch.tensor([100.0], dtype=torch.float64), rtol=1e-5, atol=0)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="steps must be at least 1; got 0"):
        largest_eigenvalue(lambda v: v, torch.ones(1, 3), steps=0)
