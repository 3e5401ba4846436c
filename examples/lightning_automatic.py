"""Lightning with automatic optimization and accumulation: python examples/lightning_automatic.py

`training_step` returns the loss, and Lightning does the rest. Two lines more are for the count of `lazy=`, and
`inference_mode=False` is for validation: a penalty needs gradients to the images, which inference mode forbids.
"""

from typing import Any

import lightning as L
import torch
from reference import EPOCHS, OPTIONS, compare, loader, network, sgd
from torch import Tensor

import gradreg


class Classifier(L.LightningModule):
    """Your module; `self.penalty` instead of a criterion."""

    def __init__(self) -> None:
        super().__init__()
        self.model = network()
        self.penalty = gradreg.GradientPenalty(**OPTIONS)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        out = self.penalty(self.model, *batch)
        self.log_dict({"loss": out.loss, "penalty": out.penalty})
        return out.loss

    def validation_step(self, batch: list[Tensor]) -> None:
        self.log("val_penalty", self.penalty(self.model, *batch).penalty)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = sgd(self.model.parameters())
        self.penalty.follow(optimizer)
        return optimizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["penalty"] = self.penalty.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.penalty.load_state_dict(checkpoint["penalty"])


def trainer(epochs: int) -> L.Trainer:
    """A trainer that takes two micro-batches per update."""
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    return L.Trainer(max_epochs=epochs, accelerator="cpu", accumulate_grad_batches=2, inference_mode=False, **quiet)


def main() -> None:
    """Train one epoch, save, resume for the others, and compare with a plain loop over whole batches."""
    first = Classifier()
    training = trainer(epochs=1)
    training.fit(first, loader(batch_size=32), loader())
    training.save_checkpoint("lightning.ckpt")
    assert first.penalty.steps == 4

    resumed = Classifier()
    trainer(EPOCHS).fit(resumed, loader(batch_size=32), loader(), ckpt_path="lightning.ckpt")
    assert resumed.penalty.steps == 4 * EPOCHS
    compare(resumed.model)


if __name__ == "__main__":
    main()
