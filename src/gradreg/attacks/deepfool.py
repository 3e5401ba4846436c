"""DeepFool: steps to the boundary of the linearised model."""

import torch

from gradreg.attacks.geometry import inner, nearest
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Count, NotNegative
from gradreg.norms import per_image


@attack_on()
def deepfool(search: Search, steps: Count = 15, overshoot: NotNegative = 0.02, warm: bool = False) -> None:
    """Walk to the linearised boundary (Moosavi-Dezfooli et al. 2016); once across, start again from the clean image.

    The second kind of step, the orthogonality of SuperDeepFool (Abdolahpourrostam et al. 2023), is the exact minimum
    for the boundary's tangent plane, in the box: it solves a linear model. Only the margin's rival class is followed,
    so a step costs one backward whatever the number of classes. With `warm` it begins at the best adversarial
    image known: for networks of rectifiers, which are linear around it, the exact minimum there.
    """
    x, threat, box = search.x, search.threat, (search.low, search.high)
    z = search.adversarial if warm else x
    for _ in range(steps):
        margin, gradient = search.margin_and_gradient(z)
        crossed = margin > 0
        onwards = nearest(threat, gradient, -margin * (1 + overshoot), z, *box)
        afresh = nearest(threat, gradient, (inner(gradient, z - x) - margin) * (1 + 0.05 * overshoot), x, *box)
        z = search.clamp(torch.where(per_image(crossed, x).bool(), x + afresh, z + onwards))
