"""Lightning Fabric: python examples/fabric.py

`fabric.setup` wraps model and optimizer, and `fabric.backward` takes the loss. Fabric's "bf16-mixed" rounds the images
to bf16 before the model sees them. No difference over a small h survives that, and the penalty says so; bf16 would not
make it cheaper either, since its passes run in float32.
"""

from lightning.fabric import Fabric
from reference import EPOCHS, OPTIONS, compare, digits, loader, network, sgd

import gradreg


def main() -> None:
    """Train, and compare with the plain loop."""
    fabric = Fabric(accelerator="cpu")
    inner = network()
    model, optimizer = fabric.setup(inner, sgd(inner.parameters()))
    batches = fabric.setup_dataloaders(loader())
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    for _ in range(EPOCHS):
        for x, y in batches:
            out = penalty(model, x, y)
            fabric.backward(out.loss)
            optimizer.step()
            optimizer.zero_grad()

    assert penalty.steps == 4 * EPOCHS
    compare(inner)

    half = Fabric(accelerator="cpu", precision="bf16-mixed").setup_module(network())
    try:
        penalty(half, *digits(8))
        raise AssertionError("rounded images were accepted")
    except gradreg.ModelError as error:
        print(error)
    penalty(half.module, *digits(8))  # the module inside of the wrapper is as good as ever


if __name__ == "__main__":
    main()
