"""One process or many: torchrun's environment, and the few collective operations."""

import gc
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

# DDP imports this module, whose functions have the default process group as a default argument. Imported while a group
# exists, they would keep it alive for ever.
import torch.distributed.nn.functional
from torch import Tensor

from gradreg.errors import ConfigError, LostProcessError

# What torchrun sets for each process, beside WORLD_SIZE.
_LAUNCHED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
# What gloo and nccl say; torch raises it as a plain RuntimeError.
_LOST = re.compile(r"/gloo/|\bNCCL\b|[Cc]onnection (closed|reset) by peer|Socket (Timeout|closed)")


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, and the device it works on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, in every process."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over all processes, in every process."""
        if self.world > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the mean of what each keeps, such as running statistics; whole numbers stay.

        Each saw its own part of the batch. DDP's way, broadcasting those of rank 0 before every forward, would
        overwrite buffers between the two forwards of a penalty.
        """
        buffers = [tensor for tensor in tensors if tensor.is_floating_point()]
        if self.world == 1 or not buffers:
            return
        joint = self.sum(torch.cat([buffer.flatten() for buffer in buffers])) / self.world
        for buffer, mean in zip(buffers, joint.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(mean.view_as(buffer))


def speaks() -> bool:
    """Whether this process prints for the user; known before and after the process group exists."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """This process among those that torchrun started, or a single one without torchrun."""
    world = _world()
    chosen = _device(device)
    if world == 1 or dist.is_initialized():
        started = dist.is_initialized()
        yield Processes(dist.get_rank() if started else 0, dist.get_world_size() if started else 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    with _one_sentence(world):
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
        try:
            yield Processes(dist.get_rank(), world, chosen)
        finally:
            leave()


@contextmanager
def _one_sentence(world: int) -> Iterator[None]:
    """Say that another process is gone, whichever operation noticed: DDP's in backward, or the store's at the start."""
    try:
        yield
    except RuntimeError as error:
        words = " ".join(str(error).split())
        if not (isinstance(error, dist.DistError) or _LOST.search(words)):
            raise
        # Without the place in their code, and without their advice.
        said = re.sub(r"^\[[^]]*\]\s*", "", words).partition(". ")[0]
        raise LostProcessError(
            f"Process {os.environ.get('RANK', '0')} of {world} has lost another, which ended or is out of reach "
            f"({said[:200]}): start all again. Training continues with --resume, an evaluation by the same command."
        ) from error


def _world() -> int:
    """The number of processes, once the environment says the same as whatever started them would."""
    world = _number("WORLD_SIZE", 1)
    if world < 1:
        raise ConfigError(f"WORLD_SIZE must be at least 1; got {world}.")
    if world == 1 or dist.is_initialized():
        return world
    missing = [name for name in _LAUNCHED if name not in os.environ]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE={world} needs {', '.join(_LAUNCHED)}; got no {', '.join(missing)}: start with torchrun, or "
            "unset WORLD_SIZE."
        )
    if not 0 <= (rank := _number("RANK", 0)) < world:
        raise ConfigError(f"RANK must be from 0 to {world - 1} with WORLD_SIZE={world}; got {rank}.")
    if not 0 < (port := _number("MASTER_PORT", 1)) < 2**16:
        raise ConfigError(f"MASTER_PORT must be from 1 to {2**16 - 1}; got {port}.")
    return world


def _number(name: str, usual: int) -> int:
    """A whole number of the environment."""
    text = os.environ.get(name, str(usual))
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise ConfigError(f"The environment variable {name} must be a whole number; got {text[:80]!r}.")
    return int(text)


def leave() -> None:
    """Destroy the process group, after collecting whatever was trained in it.

    DDP is part of a reference cycle and holds the group. If it outlived this call, the group would end with it: at
    interpreter exit, where gloo's thread aborts the process (pytorch issue 190489), or while the GIL is held, for which
    gloo's thread would wait, and DDP for that thread.
    """
    gc.collect()
    dist.destroy_process_group()


def _device(name: str) -> torch.device:
    local = _number("LOCAL_RANK", 0)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        name = found.type if found else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device must be 'auto', 'cpu', 'cuda', 'cuda:1' or similar; got {name!r}.") from None
    if device.type != "cpu" and (found is None or found.type != device.type):
        raise ConfigError(
            f"device must be one that this machine has ({found.type if found else 'no accelerator'}); got {name!r}."
        )
    return torch.device(device.type, local) if device.type == "cuda" and device.index is None else device
