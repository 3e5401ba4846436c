"""Sound radii: linear relaxations of the network (CROWN, IBP) by auto_LiRPA, where it is installed.

These are the only sound bounds here. They are small, and hold by proof up to floating point: another column.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradreg.bounds.data import check
from gradreg.calling.answers import read
from gradreg.calling.copying import copy_of
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_choice, check_count, check_number
from gradreg.checks.tensors import check_batch, check_labels
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, ModelError, words_of
from gradreg.norms import Threat, ThreatName
from gradreg.norms import threat as threat_named

_Relaxation = Literal["CROWN", "CROWN-IBP", "IBP"]


@validated
def sound_radius(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: ThreatName | Threat = "l2",
    method: _Relaxation = "CROWN",
    largest: float = 1.0,
    halvings: int = 10,
) -> Tensor:
    """For each image, the largest radius found by bisection for which every rival's logit is provably lower.

    At most `largest`, and to within largest/2^halvings below what the relaxation can prove; 0 where it proves nothing.
    The ball is not cut off at the box of pixel values, so the radius also holds for images outside of it. The model is
    traced as a copy and stays as it was.
    """
    check_choice("method", method, ("CROWN", "CROWN-IBP", "IBP"))
    largest, halvings = check_number("largest", largest, above=0), check_count("halvings", halvings)
    geometry, classifier, x = threat_named(threat), Classifier.of(model), check_batch(x)
    y = check_labels(y, len(x))
    if geometry.p is None:
        raise ConfigError(f"auto_LiRPA proves radii in l1, l2 and l∞; got {geometry.name}.")
    lirpa = _auto_lirpa()
    if not isinstance(classifier.model, nn.Module):
        raise ModelError("auto_LiRPA traces an nn.Module and cannot see into a bare function: pass the module.")
    classes, x, _ = check(classifier, x, y)
    try:
        bounded = lirpa.BoundedModule(_Traced(classifier), torch.zeros_like(x[:1]), device=str(x.device))
    except NotImplementedError as error:
        raise ModelError(
            f"auto_LiRPA cannot bound an operation of this model (its log names it; {words_of(error)}): use layers "
            "that it knows, as ReLU, or a newer auto_LiRPA."
        ) from error
    radii = []
    for image, label in zip(x, y.tolist(), strict=True):
        # auto_LiRPA takes one ε for a batch, so images go one by one.
        differences = _differences(label, classes, image)

        def proved(radius: float, image: Tensor = image, differences: Tensor = differences) -> bool:
            ball = lirpa.PerturbationLpNorm(norm=geometry.p, eps=radius)
            region = lirpa.BoundedTensor(image[None], ball)
            lower, _ = bounded.compute_bounds(x=(region,), C=differences, method=method, bound_upper=False)
            return bool((lower > 0).all())

        with torch.no_grad():
            correct = int(classifier(image[None]).argmax()) == label
        radii.append(bisect(proved, largest, halvings) if correct else 0.0)
    return torch.tensor(radii, device=x.device)


class _Traced(nn.Module):
    """The arithmetic of a classifier alone: what it checks of its input must not become part of a trace.

    A copy in evaluation mode, because auto_LiRPA sets the mode of what it is given, and moves its weights.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model = copy_of(classifier.model, "auto_LiRPA")
        self.normalise, self.output = classifier.normalise, classifier.output
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return read(self.model(self.normalise(x)), self.output)


def bisect(proved: Callable[[float], bool], largest: float, halvings: int) -> float:
    """The largest radius tried that is proved; `proved` is taken to hold up to some radius and nowhere beyond."""
    if proved(largest):
        return largest
    low, high = 0.0, largest
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low


def _differences(label: int, classes: int, like: Tensor) -> Tensor:
    """The rows that turn logits into f_c − f_i, one for each rival i."""
    eye = torch.eye(classes, device=like.device, dtype=like.dtype)
    rivals = [other for other in range(classes) if other != label]
    return (eye[label] - eye[rivals])[None]


def _auto_lirpa() -> Any:
    try:
        lirpa = import_module("auto_LiRPA")
        import_module("auto_LiRPA.perturbations")
    except ImportError as error:
        raise ConfigError(
            "Sound bounds need auto_LiRPA, which is not installed: pip install --no-deps "
            "git+https://github.com/Verified-Intelligence/auto_LiRPA (the released one is for torch < 1.13)."
        ) from error
    return lirpa
