"""One or two torch optimizers that are stepped, saved and resumed as one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.errors import RunError
from gradreg.runs.optimizers import Settings


class Optimizers:
    """One or two torch optimizers as one, with a factor on their learning rates and a state of tensors only."""

    def __init__(self, settings: Settings, model: nn.Module) -> None:
        self.members = settings.make(model)
        self.rates = [[group["lr"] for group in member.param_groups] for member in self.members]

    def step(self, factor: float) -> None:
        """Update the weights at `factor` times the learning rates, and clear the gradients."""
        for member, rates in zip(self.members, self.rates, strict=True):
            for group, rate in zip(member.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            member.step()
            member.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, by name, except what the recipe sets, such as learning rates."""
        return {
            f"{i}.{row}.{key}": torch.as_tensor(value)
            for i, member in enumerate(self.members)
            for row, entries in member.state_dict()["state"].items()
            for key, value in entries.items()
            if value is not None
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        found: list[dict[int, dict[str, Any]]] = [{} for _ in self.members]
        for name, value in state.items():
            which, row, key = self._place(name, value)
            found[which].setdefault(row, {})[key] = value
        for member, rows in zip(self.members, found, strict=True):
            member.load_state_dict({"state": rows, "param_groups": member.state_dict()["param_groups"]})

    def _place(self, name: str, value: Tensor) -> tuple[int, int, str]:
        """The optimizer, parameter and quantity that a name in a checkpoint stands for, if the value fits."""
        numbers, key = name.split(".", 2)[:2], name.split(".", 2)[-1]
        if len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers):
            which, row = map(int, numbers)
            groups = self.members[which].param_groups if which < len(self.members) else []
            weights = [weight for group in groups for weight in group["params"]]
            if row < len(weights) and value.shape in (weights[row].shape, ()) and bool(value.isfinite().all()):
                return which, row, key
        raise RunError(f"optimizer/{name} of shape {tuple(value.shape)} does not fit the optimizer, or is not finite.")
