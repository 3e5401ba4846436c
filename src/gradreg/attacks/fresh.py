"""Images asked again under draws of a randomised model that no attack has seen."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.calling.answers import Model
from gradreg.classifier import Classifier
from gradreg.fingerprints import image_keys
from gradreg.losses import misclassified
from gradreg.models.randomised import averages, fresh_draws


@dataclass(frozen=True)
class FreshAnswers:
    """Of each image: whether the average of fresh draws misclassifies it, and the share of them that do alone."""

    wrong: Tensor
    share: Tensor


def fresh_draws_of(model: Model) -> int:
    """How many fresh draws an image is asked again under: as many as the model averages, 0 if it averages none."""
    return max((each.draws for each in averages(model)), default=0)


def fresh_answers(model: Model, x: Tensor, y: Tensor, images: Tensor, topk: int) -> FreshAnswers | None:
    """What draws that belong to the clean image of each of `x` make of `images`; None if the model averages none."""
    classifier, draws = Classifier.of(model), fresh_draws_of(model)
    if not draws:
        return None

    def fooled(image: Tensor, label: Tensor, key: int, single: int | None) -> Tensor:
        with fresh_draws(classifier, key, single):
            return misclassified(classifier.ask(image), label, topk)

    wrong = torch.zeros(len(y), dtype=torch.bool, device=y.device)
    share = torch.zeros(len(y), device=y.device)
    for row, key in enumerate(image_keys(x).tolist()):
        image, label = images[row : row + 1], y[row : row + 1]
        wrong[row] = fooled(image, label, key, None)[0]
        share[row] = sum(int(fooled(image, label, key, draw)) for draw in range(draws)) / draws
    return FreshAnswers(wrong, share)


def asked_again(model: Model, x: Tensor, y: Tensor, result: AttackResult) -> AttackResult:
    """The result with what fresh draws make of the adversarial images; as it is for a model that averages none."""
    found = fresh_answers(model, x, y, result.adversarial, result.topk)
    return result if found is None else replace(result, fresh=found.wrong, fresh_share=found.share)
