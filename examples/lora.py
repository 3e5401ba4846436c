"""LoRA adapters of PEFT on a Hugging Face ViT: python examples/lora.py

The model goes in as PEFT made it. Only the adapters and the head get gradients; the frozen weights cost none.
"""

from copy import deepcopy
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from reference import EPOCHS, OPTIONS, compare, loader, sgd
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

import gradreg


def adapted() -> nn.Module:
    """A tiny ViT, which stands for a pretrained one, with adapters; the same weights every time."""
    torch.manual_seed(0)
    size = {"image_size": 28, "patch_size": 7, "num_channels": 1, "num_labels": 10, "initializer_range": 0.1}
    width = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "fc1"], modules_to_save=["classifier"])
    return get_peft_model(ViTForImageClassification(ViTConfig(**size, **width)), lora)


def main() -> None:
    """Train the adapters, and compare with the plain loop and with the gradients of the whole weights."""
    model = adapted()
    frozen = {name: weight.clone() for name, weight in model.named_parameters() if not weight.requires_grad}
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = sgd(trained)
    penalty = gradreg.GradientPenalty(**OPTIONS | {"eps": 0.03}).follow(optimizer)
    for _ in range(EPOCHS):
        for x, y in loader():
            out = penalty(model, x, y)
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
    optimizer.zero_grad()

    weights = dict(model.named_parameters())
    assert all(torch.equal(weights[name], before) and weights[name].grad is None for name, before in frozen.items())
    print(f"{sum(map(torch.numel, trained))} weights trained, {sum(map(torch.numel, frozen.values()))} untouched")
    compare(model, adapted, eps=0.03)
    assert_chain_rule(model)


def assert_chain_rule(model: Any) -> None:
    """An adapter's gradients are those of the whole weight W + s·BA, times s, B and A."""
    x, y = next(iter(loader()))
    gradreg.regularized_loss(model, x, y, eps=0.03).loss.backward()
    adapter = model.base_model.model.vit.layers[0].mlp.fc1
    down, up, scale = adapter.lora_A["default"].weight, adapter.lora_B["default"].weight, adapter.scaling["default"]
    merged = deepcopy(model).merge_and_unload().requires_grad_(True)
    gradreg.regularized_loss(merged, x, y, eps=0.03).loss.backward()
    whole = merged.vit.layers[0].mlp.fc1.weight.grad
    torch.testing.assert_close(up.grad, scale * whole @ down.T, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(down.grad, scale * up.T @ whole, rtol=1e-3, atol=1e-6)


if __name__ == "__main__":
    main()
