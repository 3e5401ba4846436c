"""Norms without a short name on an accelerator: parameters follow the images, and draws are the host's."""

import pytest
import torch

import gradreg
from accelerator.accelerated import assert_same, images, network, on
from gradreg.norms import Mahalanobis, Pixelwise, Threat, Weighted
from own_norms import matrix, weights

SHAPE = (3, 8, 8)
NORMS: dict[str, Threat] = {
    "weighted": Weighted("linf", weights(SHAPE)),
    "mahalanobis": Mahalanobis(matrix(3)),
    "pixelwise": Pixelwise(),
}


@pytest.mark.parametrize("t", NORMS.values(), ids=NORMS)
def test_what_is_found_on_the_host_is_found_there(t: Threat, device: torch.device) -> None:
    found, bounded = [], []
    for model, x, y in ((network(), *images()), on(device, network(), *images())):
        found.append(gradreg.attack(model, x, y, threat=t, attacks=["fmn", "pgd", "deepfool"]))
        known = gradreg.estimate_regularity(model, (x, y), t, method="local")
        bounded.append(gradreg.bounds(model, x, y, known).omega.cpu())
    assert_same(found[1], found[0])
    torch.testing.assert_close(bounded[1], bounded[0], rtol=1e-5, atol=1e-9)
