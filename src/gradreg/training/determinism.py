"""Runs that repeat bit for bit where torch would otherwise trade that for speed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gradreg.errors import ConfigError

_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
_FIXED = (":4096:8", ":16:8")


@contextmanager
def deterministic(enabled: bool, device: torch.device) -> Iterator[None]:
    """Inside, torch uses deterministic algorithms only; its flags are restored afterwards."""
    if not enabled:
        yield
        return
    # cuBLAS reads it once, when CUDA is first used: setting it here may be too late.
    if device.type == "cuda" and os.environ.get(_VARIABLE) not in _FIXED:
        raise ConfigError(
            f"The environment variable {_VARIABLE} must be {' or '.join(_FIXED)} for deterministic = true on CUDA; got "
            f"{os.environ.get(_VARIABLE, 'none')!r}. Start the program with {_VARIABLE}={_FIXED[0]}."
        )
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, fixed = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=False)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    except RuntimeError as error:
        if "does not have a deterministic implementation" not in str(error):
            raise
        raise ConfigError(
            f"{str(error).split()[0]} has no deterministic implementation on {device.type}, which deterministic = true "
            "requires: replace it in the model or the objective, or set deterministic = false."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark, cudnn.deterministic = benchmark, fixed
