"""Adversarial images of an averaged model, asked again under draws that no attack has seen."""

from dataclasses import replace

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.calling.answers import Model
from gradreg.classifier import Classifier
from gradreg.losses import misclassified
from gradreg.models.randomised import fresh_draws


def asked_again(model: Model, y: Tensor, result: AttackResult, batch_size: int) -> AttackResult:
    """The result with `fresh` where the model averages draws; as it is for any other model."""
    classifier = Classifier.of(model)
    with fresh_draws(classifier) as averages:
        if not averages:
            return result
        found = [
            misclassified(classifier.ask(images), labels, result.topk)
            for images, labels in zip(result.adversarial.split(batch_size), y.split(batch_size), strict=True)
        ]
    return replace(result, fresh=torch.cat(found))
