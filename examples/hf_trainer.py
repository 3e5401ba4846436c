"""Hugging Face Trainer with accumulation, on a ViT: python examples/hf_trainer.py

`compute_loss` is the place. Of a model whose forward takes **kwargs, as most do, Trainer believes that its loss is
divided by the images of all micro-batches already. The mean of a batch is not: without the marked line gradients and
logged losses would be twice as large here. (New versions also know `loss_is_scaled_for_ga = False`.)
"""

from typing import Any

import torch
from reference import BATCH, EPOCHS, OPTIONS, compare, digits
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import gradreg


def vit() -> nn.Module:
    """A tiny ViT; the same weights every time."""
    torch.manual_seed(0)
    size = {"image_size": 28, "patch_size": 7, "num_channels": 1, "num_labels": 10, "initializer_range": 0.1}
    width = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return ViTForImageClassification(ViTConfig(**size, **width))


class Penalised(Trainer):
    """Trainer with the penalty."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.model_accepts_loss_kwargs = False  # divide the loss, which is the mean of its batch, by the micro-batches
        self.penalty = gradreg.GradientPenalty(**OPTIONS | {"eps": 0.03})

    def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
        optimizer = super().create_optimizer(*args)
        self.penalty.follow(optimizer)
        return optimizer

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        out = self.penalty(model, inputs["pixel_values"], inputs["labels"])
        return (out.loss, {"loss": out.loss, "logits": out.logits}) if return_outputs else out.loss


def trained(undone: bool = False) -> Penalised:
    """Two micro-batches per update, in the order of the data, with every loss logged."""
    data = [{"pixel_values": image, "labels": label} for image, label in zip(*digits(), strict=True)]
    arguments = TrainingArguments(
        "hf-trainer", num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH // 2, gradient_accumulation_steps=2,
        optim="sgd", optim_args="momentum=0.9", learning_rate=0.05, lr_scheduler_type="constant", max_grad_norm=0.0,
        train_sampling_strategy="sequential", logging_steps=1, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Penalised(vit(), arguments, train_dataset=data)
    trainer.model_accepts_loss_kwargs |= undone
    trainer.train()
    return trainer


def main() -> None:
    """Train with and without the marked line, and compare with a plain loop over whole batches."""
    right, wrong = trained(), trained(undone=True)
    first, doubled = (trainer.state.log_history[0]["loss"] for trainer in (right, wrong))
    x, y = (column[:BATCH] for column in digits())
    expected = float(gradreg.regularized_loss(vit(), x, y, step=0, **OPTIONS | {"eps": 0.03}).loss.detach())
    print(f"first logged loss {first:.4f}, the plain loop's {expected:.4f}, without the line {doubled:.4f}")
    assert abs(first - expected) < 1e-3
    assert abs(doubled - 2 * expected) < 2e-3
    assert right.penalty.steps == 4 * EPOCHS
    compare(right.model, vit, eps=0.03)


if __name__ == "__main__":
    main()
