"""FSDP2 (fully_shard): torchrun --nproc-per-node 2 examples/fsdp2.py

Double backprop fails under FSDP2: weights are gathered for a pass and freed after it, and the graph of a gradient needs
them again. Finite differences take ordinary passes only, and so work.
"""

import gc
from typing import Any

import torch
import torch.distributed as dist
from reference import EPOCHS, OPTIONS, compare, digits, loader, network, sgd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradreg


def sharded() -> Any:
    """The network, each process with its part of the weights."""
    model, mesh = network(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.children():
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    """Train, and compare with one process that has the whole batch and all weights."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = sharded()
    optimizer = sgd(model.parameters())
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    for _ in range(EPOCHS):
        for x, y in loader():
            penalty(model, x[rank::world], y[rank::world]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    whole = network()
    for weight, part in zip(whole.parameters(), model.parameters(), strict=True):
        weight.data.copy_(part.full_tensor().detach())
    if rank == 0:
        compare(whole)

    try:
        exact = gradreg.regularized_loss(sharded(), *digits(8), eps=1.0, method="double-backprop")
        exact.loss.backward()
        raise AssertionError("double backprop runs under FSDP2 by now: say so in docs/loops.md")
    except RuntimeError as error:
        print("double backprop:", str(error).partition("\n")[0])
    dist.barrier()


if __name__ == "__main__":
    main()
    gc.collect()  # what holds the group goes before it, since gloo's threads must not outlive the interpreter
    dist.destroy_process_group()
