"""Activation checkpointing: models that run parts of their forward again during a backward."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn.modules.module import register_module_forward_pre_hook

from gradreg.calling.known import Known
from gradreg.defaults import callers_default
from gradreg.errors import ModelError


@contextmanager
def differentiating() -> Iterator[None]:
    """One sentence for a kind of checkpointing that cannot be differentiated with respect to the images alone."""
    try:
        with callers_default():
            yield
    except RuntimeError as error:
        if "use_reentrant=True" not in str(error):
            raise
        raise ModelError(
            "The model uses reentrant activation checkpointing, which cannot give the gradient of the images alone: "
            "pass use_reentrant=False to torch.utils.checkpoint."
        ) from error


@contextmanager
def watching(known: Known) -> Iterator[None]:
    """Remember whether modules are called during this backward."""
    if known.recomputes is not None:
        yield
        return
    called = False

    def notice(*_: object) -> None:
        nonlocal called
        called = True

    handle = register_module_forward_pre_hook(notice)
    try:
        yield
    finally:
        handle.remove()
    known.recomputes = called
