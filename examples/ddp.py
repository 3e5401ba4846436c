"""DistributedDataParallel: torchrun --nproc-per-node 2 examples/ddp.py

The wrapped model goes in. All weight gradients are handed out in the one `backward`, so DDP averages them once, and
`no_sync` works as ever under accumulation.
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from reference import EPOCHS, OPTIONS, compare, loader, network, sgd
from torch.nn.parallel import DistributedDataParallel

import gradreg


def train(model: DistributedDataParallel) -> gradreg.GradientPenalty:
    """Two micro-batches per update and process: a quarter of the batch each, with two processes."""
    optimizer = sgd(model.parameters())
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    rank, world = dist.get_rank(), dist.get_world_size()
    for _ in range(EPOCHS):
        for x, y in loader():  # a DistributedSampler in life; here each process takes its own rows
            parts = zip(x[rank::world].chunk(2), y[rank::world].chunk(2), strict=True)
            for last, (images, labels) in enumerate(parts):
                with nullcontext() if last else model.no_sync():
                    (penalty(model, images, labels).loss / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
    return penalty


def main() -> None:
    """Train, and compare with one process that has the whole batch."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    inner = network()
    penalty = train(DistributedDataParallel(inner))
    assert penalty.steps == 4 * EPOCHS
    first = [weight.detach().clone() for weight in inner.parameters()]
    for weight, other in zip(inner.parameters(), first, strict=True):
        dist.broadcast(other, 0)
        assert torch.equal(weight, other), "the processes have gone apart"
    if dist.get_rank() == 0:
        compare(inner)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
