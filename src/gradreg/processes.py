"""One process or many: what torchrun says, and the few things that processes tell each other."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

# DDP imports this one, whose functions have the group of all processes as a default argument: imported when there is
# one, they would keep it for ever.
import torch.distributed.nn.functional
from torch import Tensor, nn

from gradreg.errors import ConfigError


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is, and the device it works on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Added over all processes, everywhere."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over all processes, everywhere."""
        if self.world > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()

    def average_buffers(self, model: nn.Module) -> None:
        """Give all processes the mean of their running statistics.

        Each saw its own share of the batch. DDP's own way, the first one's statistics broadcast before every forward,
        would overwrite buffers between the two forwards of a penalty.
        """
        buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        if self.world == 1 or not buffers:
            return
        joint = self.sum(torch.cat([buffer.flatten() for buffer in buffers])) / self.world
        for buffer, mean in zip(buffers, joint.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(mean.view_as(buffer))


def speaks() -> bool:
    """Whether this is the process that tells the user things, also before and after it is joined to the others."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """This process among those that torchrun started; alone if it did not."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = _device(device)
    if world == 1 or dist.is_initialized():
        started = dist.is_initialized()
        yield Processes(dist.get_rank() if started else 0, dist.get_world_size() if started else 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), world, chosen)
    finally:
        leave()


def leave() -> None:
    """End the group of processes, after all that was trained in it has gone out of reach.

    DDP lies in a cycle and holds the group. If it outlived this, the group would end with it: while the interpreter
    ends, where gloo's thread aborts a process whose work is done (pytorch issue 190489), or with the interpreter's lock
    held, for which that thread then waits and DDP for the thread.
    """
    gc.collect()
    dist.destroy_process_group()


def _device(name: str) -> torch.device:
    local = int(os.environ.get("LOCAL_RANK", "0"))
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        name = found.type if found else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device is {name!r}, but it is 'auto', 'cpu', 'cuda', 'cuda:1' and so on.") from None
    if device.type != "cpu" and (found is None or found.type != device.type):
        raise ConfigError(f"device is {name!r}, but this machine has {found.type if found else 'no accelerator'}.")
    return torch.device(device.type, local) if device.type == "cuda" and device.index is None else device
