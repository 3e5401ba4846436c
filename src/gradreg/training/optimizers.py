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
        self._names = {id(weight): name for name, weight in model.named_parameters()}
        self._doubtful: list[nn.Parameter] = []
        """Weights without state in a checkpoint that does not say how many tensors it has."""
        self.rates = [[group["lr"] for group in member.param_groups] for member in self.members]

    def step(self, factor: float) -> None:
        """Update the weights at `factor` times the learning rates, and clear the gradients."""
        self._check_doubtful()
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

    def load(self, state: Mapping[str, Tensor], steps: int, *, counted: bool = True) -> None:
        """Restore what `state` returned after that many steps; `counted`: nothing else of it can be missing."""
        found: list[dict[int, dict[str, Any]]] = [{} for _ in self.members]
        for name, value in state.items():
            which, row, key = self._place(name, value, steps)
            found[which].setdefault(row, {})[key] = value
        for which, (member, rows) in enumerate(zip(self.members, found, strict=True)):
            for row, entries in rows.items():
                if missing := _quantities(member) - entries.keys():
                    raise RunError(f"optimizer/{which}.{row}.{min(missing)} is missing.")
        # A weight that no loss depends on, or that is frozen, has no state; all of them together are trained.
        if steps and not state and any(map(_quantities, self.members)):
            raise RunError(f"It must hold the state of the optimizer after {steps} steps; got none of it.")
        self._doubtful = []
        for member, rows in zip(self.members, found, strict=True):
            if steps and not counted and _quantities(member):
                self._doubtful += [weight for row, weight in enumerate(_weights(member)) if row not in rows]
            member.load_state_dict({"state": rows, "param_groups": member.state_dict()["param_groups"]})

    def _check_doubtful(self) -> None:
        """Refuse a weight whose state is lost: one that no loss depends on has no gradient in the next step either."""
        lost = [weight for weight in self._doubtful if weight.grad is not None]
        if lost:
            name, others = self._names[id(lost[0])], f" and {len(lost) - 1} others" if len(lost) > 1 else ""
            raise RunError(
                f"The checkpoint must hold the optimizer's state of all weights that are trained; got none of {name}"
                f"{others}: delete that checkpoint, so that the one before is used, or start a new run."
            )
        self._doubtful = []

    def _place(self, name: str, value: Tensor, steps: int) -> tuple[int, int, str]:
        """The optimizer, parameter and quantity that a name in a checkpoint stands for, if the value fits."""
        numbers, key = name.split(".", 2)[:2], name.split(".", 2)[-1]
        if len(numbers) == 2 and all(number.isascii() and number.isdigit() for number in numbers):
            which, row = map(int, numbers)
            member = self.members[which] if which < len(self.members) else None
            weights = _weights(member) if member else []
            if member and row < len(weights) and key in _quantities(member):
                shape = torch.Size(()) if key == _COUNT else weights[row].shape
                if value.shape == shape and value.is_floating_point() and bool(value.isfinite().all()):
                    if key == _COUNT and not 1 <= float(value) <= steps:
                        raise RunError(f"optimizer/{name} must be from 1 to {steps}, the steps made; got {value:g}.")
                    return which, row, key
        raise RunError(
            f"optimizer/{name}, {value.dtype} of shape {tuple(value.shape)}, does not fit the optimizer, or is not "
            "finite."
        )


_COUNT = "step"


def _weights(member: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [weight for group in member.param_groups for weight in group["params"]]


def _quantities(member: torch.optim.Optimizer) -> set[str]:
    """What the optimizer keeps of each weight that it has updated."""
    if isinstance(member, torch.optim.AdamW):
        return {_COUNT, "exp_avg", "exp_avg_sq"}
    return {"momentum_buffer"} if member.defaults["momentum"] else set()
