"""A network as an ONNX file: pixels in, logits out, any batch size, checked against the network itself."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradreg.calling.answers import answer
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_path, shown
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, ModelError
from gradreg.extras import need
from gradreg.writing import replacing

# By how much logits may differ, over the largest of them.
_SAME = 1e-5
_BATCHES = (1, 2, 5)
_LONGEST = 10_000


@validated
def export_onnx(model: nn.Module, path: str | os.PathLike[str], shape: Sequence[int]) -> Path:
    """Write `model` for images of `shape`, as (3, 32, 32); the input is "pixels", in [0, 1], and the output "logits".

    The file is run by onnxruntime on batches of several sizes before it appears, and must answer as the model does, to
    1e-5 of the largest logit. The model must be in eval mode; it is not changed.
    """
    target, shape = check_path("path", path), _check_shape(shape)
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need(package, "export_onnx")
    classifier = Classifier.of(model)
    images = _images(classifier, shape)
    classifier.check(images, torch.zeros(len(images), dtype=torch.int64, device=images.device))
    with replacing(target) as aside:
        _write(_Bare(classifier), images[:2], aside)
        _check(classifier, images, aside)
    return target


def _check_shape(shape: Any) -> tuple[int, ...]:
    sides = tuple(shape) if isinstance(shape, list | tuple | torch.Size) else ()
    if not sides or not all(type(side) is int and 0 < side <= _LONGEST for side in sides):
        raise ConfigError(f"shape must be that of one image, such as (3, 32, 32); got {shown(shape)}.")
    return sides


class _Bare(nn.Module):
    """The same layers without the checks, which would fix the batch size."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, pixels: Tensor) -> Tensor:
        return answer(self.classifier.model, self.classifier.normalise(pixels), self.classifier.output)


def _images(classifier: Classifier, shape: Sequence[int]) -> Tensor:
    tensors = (tensor for group in (classifier.parameters(), classifier.buffers()) for tensor in group)
    weight = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros(0))
    source = torch.Generator().manual_seed(0)
    low, high = classifier.box
    images = low + (high - low) * torch.rand((max(_BATCHES), *shape), generator=source)
    return images.to(weight.device, weight.dtype)


def _write(model: nn.Module, images: Tensor, path: Path) -> None:
    try:
        with warnings.catch_warnings(), _silent("torch.onnx"), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's own, about its own internals
            program: Any = torch.onnx.export(
                model,
                (images,),
                dynamo=True,
                input_names=["pixels"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
            program.save(str(path), external_data=False)
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        raise ModelError(f"The model cannot be written as ONNX by torch's exporter: {words}") from error


@contextmanager
def _silent(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check(classifier: Classifier, images: Tensor, path: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for size in _BATCHES:
        expected = classifier.ask(images[:size]).cpu().numpy()
        found = session.run(["logits"], {"pixels": images[:size].cpu().numpy()})[0]
        if found.shape != expected.shape or np.abs(found - expected).max() > _SAME * max(1.0, np.abs(expected).max()):
            raise ModelError(
                f"The exported file answers otherwise than the model for a batch of {size}: it may depend on the "
                "batch, or compute in another precision."
            )
