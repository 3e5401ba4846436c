"""A model and tensors that are not on one device, or of one dtype: what torch says about it, in one sentence.

Models that move or cast their input themselves are common (sharded and offloaded ones), so nothing is refused
beforehand.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from gradreg.calling.answers import Model
from gradreg.calling.asking import check_weights
from gradreg.calling.targets import Target, leaves
from gradreg.errors import DataError, ModelError


@contextmanager
def same_device(model: Model, x: Tensor, y: Target) -> Iterator[None]:
    """Inside, a failure of torch becomes an error about the images or labels that do not fit the model."""
    try:
        yield
    except RuntimeError as error:
        weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        check_weights(model, lazy=True)
        if "Inference tensors" in str(error):
            raise ModelError(
                "The model has weights or buffers from torch.inference_mode(), which autograd cannot use: build or "
                "load it outside of that, or clone them there."
            ) from error
        if weight is not None and weight.device != x.device:
            raise DataError(
                f"x must be on the model's device, {weight.device}; got {x.device}. Move one of them."
            ) from error
        for part in leaves(y):
            if part.device != x.device:
                raise DataError(
                    f"y must be on the device of x, {x.device}; got {part.device}. Move one of them."
                ) from error
        if weight is not None and weight.dtype != x.dtype and "type" in str(error):
            raise DataError(
                f"x must have the model's dtype, {weight.dtype}; got {x.dtype}. Cast one of them."
            ) from error
        raise
