"""What can be told of a model without examining it."""

from hashlib import blake2b

import torch
from torch import Tensor, nn

from gradreg.classifier import Classifier
from gradreg.errors import GradregError, ModelError
from gradreg.evaluation.record import Subject
from gradreg.passes import Model


def describe(model: Model, name: str | None) -> Subject:
    """A model that is known from Python only."""
    inner = model.model if isinstance(model, Classifier) else model
    kind = type(inner).__name__ if isinstance(inner, nn.Module) else getattr(inner, "__name__", type(inner).__name__)
    return Subject(name or kind, "Python", kind, parameters(inner))


def parameters(model: Model) -> int:
    """How many numbers were trained."""
    return sum(weight.numel() for weight in model.parameters()) if isinstance(model, nn.Module) else 0


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """Where its numbers lie; where the images do if it has none, as a function has not."""
    return next((tensor.device for group in (model.parameters(), model.buffers()) for tensor in group), x.device)


def check_fits(model: Model, x: Tensor, data: str, classes: int | None) -> int:
    """The number of classes, by a forward of one image; a model for other images or other classes is refused."""
    classifier = Classifier.of(model)
    classifier._check_mode()  # before any forward: one in train mode would change running statistics
    try:
        with torch.no_grad():
            found = int(classifier(x[:1]).shape[1])
    except GradregError:
        raise
    except Exception as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"The model does not take the images of {data}, which are of shape {tuple(x.shape[1:])}: {words}."
        ) from error
    if classes is not None and found != classes:
        raise ModelError(
            f"The model has {found} classes and {data} has {classes}: evaluate it on the data that it was trained for."
        )
    return found


def weights_key(classifier: Classifier, x: Tensor) -> str:
    """A fingerprint of a model: its layers and weights; of a bare function, what it makes of the images."""
    digest = blake2b(repr((classifier.box, classifier._mean, classifier._std)).encode(), digest_size=16)
    model = classifier.model
    if not isinstance(model, nn.Module):
        with torch.no_grad():
            digest.update(repr(classifier(x).argmax(1).tolist()).encode())
        return digest.hexdigest()
    digest.update(repr(model).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
