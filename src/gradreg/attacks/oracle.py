"""An oracle for tools that look for the critical ε of an image by asking about one ε after another.

VERONA's attacks are such oracles: objects with a `name` and `execute(model, data, target, epsilon)`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.attacks.suite import AttackOptions, SuiteName, attack
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_number
from gradreg.checks.tensors import check_batch, check_device, check_labels
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError
from gradreg.fingerprints import images_key
from gradreg.norms import Threat, ThreatName, per_image, robust_at
from gradreg.penalty.passes import Model

# A search over ε asks for one image at a time; of more, the oldest are forgotten.
_KEPT = 64


class EpsilonOracle:
    """One search per image for its nearest adversarial image, which answers for every ε; options are those of `attack`.

    `execute` returns the adversarial image where one is known within ε and the image itself elsewhere, so that whoever
    asks the model about it sees what holds. A robust answer proves nothing.
    """

    def __init__(
        self, threat: ThreatName | Threat = "linf", attacks: SuiteName | Sequence[str] = "standard", **options: Any
    ) -> None:
        if "eps" in options:
            raise ConfigError("An oracle answers for every epsilon, so leave out eps=.")
        self.options = AttackOptions(threat=threat, attacks=attacks, **options)
        words = attacks if isinstance(attacks, str) else "+".join(attacks)
        self.name = f"gradreg ({words}, {self.options.norm.name})"
        self._known: dict[str, AttackResult] = {}

    @validated
    def critical(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        """The smallest ε that is known to be unsafe, per image: 0 if it is misclassified, inf if nothing was found."""
        return self._found(model, check_batch(x), check_labels(y, len(x))).distance

    @validated
    def execute(self, model: Model, data: Tensor, target: Tensor, epsilon: float) -> Tensor:
        """As a batch: the adversarial images that are known within ε, and the images themselves where there is none."""
        epsilon = check_number("epsilon", epsilon, least=0, usual="a radius in pixel units")
        x = check_batch(data[None] if isinstance(data, Tensor) and data.ndim in (1, 3) else data, "data")
        y = check_labels(target.reshape(-1) if isinstance(target, Tensor) else target, len(x), "target")
        found = self._found(model, x, y)
        broken = per_image(~robust_at(found.distance, epsilon), x).bool()
        return torch.where(broken, found.adversarial, x.to(found.adversarial.dtype))

    def _found(self, model: Model, x: Tensor, y: Tensor) -> AttackResult:
        check_device("y", y, x)
        key = f"{Classifier.of(model).fingerprint(x)} {images_key(x, y)}"
        if key not in self._known:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = attack(model, x, y, self.options, progress=False)
        return self._known[key]
