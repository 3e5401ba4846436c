"""Runs that repeat to the bit where torch would otherwise trade that for speed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gradreg.errors import ConfigError

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
FIXED = (":4096:8", ":16:8")


@contextmanager
def deterministic(wanted: bool, device: torch.device) -> Iterator[None]:
    """Inside, torch uses or demands algorithms that give the same bits every time; afterwards it is as it was."""
    if not wanted:
        yield
        return
    # cuBLAS reads it once, when CUDA is first used: setting it here may be too late.
    if device.type == "cuda" and os.environ.get(VARIABLE) not in FIXED:
        raise ConfigError(
            f"deterministic = true needs the environment variable {VARIABLE} to be {' or '.join(FIXED)} on CUDA, but "
            f"it is {os.environ.get(VARIABLE, 'not set')}: start the program with {VARIABLE}={FIXED[0]}."
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
            f"deterministic = true, but {str(error).split()[0]} has no deterministic form on {device.type}: replace "
            "what uses it in the model or the objective, or leave deterministic out."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark, cudnn.deterministic = benchmark, fixed
