"""A vision transformer with fused attention, compiled: python examples/vit_compiled.py

Neither has a second derivative, so the exact penalty by double backprop does not run. Finite differences need none.
"""

import torch
import torch.nn.functional as F
from reference import EPOCHS, OPTIONS, compare, digits, loader, sgd
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import gradreg


class Block(nn.Module):
    """Attention by torch's fused kernel, and a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """One residual step of each."""
        query, key, value = self.qkv(self.norms[0](x)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.norms[1](x))
        return out


class ViT(nn.Module):
    """Patches of 7 × 7, two blocks, mean over patches."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 7, stride=7)
        self.place = nn.Parameter(torch.randn(16, width))
        self.blocks, self.head = nn.Sequential(Block(width), Block(width)), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.place).mean(1))
        return logits


def vit() -> ViT:
    """The same weights every time."""
    torch.manual_seed(0)
    return ViT()


def main() -> None:
    """Train the compiled network, and compare with the plain loop over the same network as it is."""
    model = vit()
    compiled = torch.compile(model)
    optimizer = sgd(model.parameters())
    penalty = gradreg.GradientPenalty(**OPTIONS)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # nothing else may be chosen
        for _ in range(EPOCHS):
            for x, y in loader():
                out = penalty(compiled, x, y)
                optimizer.zero_grad()
                out.loss.backward()
                optimizer.step()
        for refused in (vit(), compiled):
            try:
                exact = gradreg.regularized_loss(refused, *digits(8), eps=1.0, method="double-backprop")
                exact.loss.backward()
                raise AssertionError("double backprop runs by now")
            except RuntimeError as error:
                print("double backprop:", str(error).partition(".")[0])

    compare(model, vit)


if __name__ == "__main__":
    main()
