"""Lightning with manual optimization: python examples/lightning_manual.py

`manual_backward` instead of `loss.backward()`; everything else is the plain loop, inside of `training_step`.
"""

import lightning as L
import torch
from reference import EPOCHS, OPTIONS, compare, loader, network, sgd
from torch import Tensor

import gradreg


class Classifier(L.LightningModule):
    """Your module, which steps its optimizer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = network()
        self.penalty = gradreg.GradientPenalty(**OPTIONS)

    def training_step(self, batch: list[Tensor]) -> None:
        optimizer = self.optimizers()
        out = self.penalty(self.model, *batch)
        optimizer.zero_grad()
        self.manual_backward(out.loss)
        optimizer.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return sgd(self.model.parameters())


def main() -> None:
    """Train, and compare with the plain loop."""
    module = Classifier()
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    L.Trainer(max_epochs=EPOCHS, accelerator="cpu", **quiet).fit(module, loader())
    assert module.penalty.steps == 4 * EPOCHS
    compare(module.model)


if __name__ == "__main__":
    main()
