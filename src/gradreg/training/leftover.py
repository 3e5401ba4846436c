"""A last batch of one image: batch normalisation may have no statistics of it, which is better known at the start."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from gradreg.calling.asking import named
from gradreg.data.asking import failing
from gradreg.data.pairs import batch, pair
from gradreg.errors import DataError, ModelError, words_of


def check_last_batch(model: nn.Module, loader: Iterable[Any], device: torch.device, kind: torch.dtype | None) -> None:
    """Refuse training batches of which the last holds one image that the model cannot be trained on.

    Only what a loader tells without being read is known, and only models with batch normalisation are tried.
    """
    if not any(isinstance(layer, _BatchNorm) for layer in model.modules()):
        return
    entry = _single_image(loader)
    if entry is None:
        return
    x = batch(pair(entry, "A loader")[0]).to(device, kind)
    try:
        with torch.no_grad(), named(x):
            _in_train_mode(model, x)
    except ModelError as error:
        if not isinstance(error.__cause__, ValueError):  # not what batch normalisation says
            raise
        raise DataError(
            f"The last of the training batches holds one image, on which the model fails in train mode "
            f"({words_of(error.__cause__)}): pass drop_last=True to the DataLoader, or choose another batch size."
        ) from error


def _in_train_mode(model: nn.Module, x: Tensor) -> None:
    """A forward that moves copies of the running statistics; the modes are put back."""
    modes = [(layer, layer.training) for layer in model.modules()]
    try:
        functional_call(model.train(), {name: buffer.clone() for name, buffer in model.named_buffers()}, (x,))
    finally:
        for layer, training in modes:
            layer.training = training


def _single_image(loader: Iterable[Any]) -> Any:
    """A batch of one image as the loader would make its last one; None where that has more, or nobody knows."""
    if isinstance(loader, list | tuple):
        return loader[-1] if len(batch(pair(loader[-1], "A loader")[0])) == 1 else None
    if not isinstance(loader, DataLoader) or type(loader.batch_sampler) is not BatchSampler or loader.drop_last:
        return None
    if isinstance(loader.dataset, IterableDataset):
        return None
    sampler: Any = loader.sampler
    # Those of torch ask for images by whole numbers. They are not asked themselves, since that would move their stream.
    if not type(sampler).__module__.startswith("torch.") or len(sampler) % loader.batch_sampler.batch_size != 1:
        return None
    with failing("image 0"):
        return loader.collate_fn([loader.dataset[0]])
