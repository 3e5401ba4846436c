"""Hugging Face Accelerate with bf16 and accumulation: python examples/accelerate_bf16.py

`register_for_checkpointing` takes the penalty as it is: it has a `state_dict`. bf16 is Accelerate's, inside of the
wrapped model; the penalty switches it off for its passes, so the gradients are the plain loop's in float32.
"""

from accelerate import Accelerator
from reference import EPOCHS, OPTIONS, compare, loader, network, sgd
from torch import nn

import gradreg


def train(epochs: int, *, resume: bool) -> nn.Module:
    """Your loop: micro-batches of 32, two of them per update; it saves its state at the end."""
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    inner = network()
    model, optimizer, batches = accelerator.prepare(inner, sgd(inner.parameters()), loader(batch_size=32))
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    accelerator.register_for_checkpointing(penalty)
    if resume:
        accelerator.load_state("accelerate-state")
    for _ in range(epochs):
        for x, y in batches:
            with accelerator.accumulate(model):
                out = penalty(model, x, y)
                accelerator.backward(out.loss)
                optimizer.step()
                optimizer.zero_grad()
    accelerator.save_state("accelerate-state")
    assert penalty.steps == 4 * (EPOCHS if resume else epochs)
    return inner


def main() -> None:
    """Train one epoch, resume for the others, and compare with the plain loop in float32."""
    train(1, resume=False)
    compare(train(EPOCHS - 1, resume=True))


if __name__ == "__main__":
    main()
