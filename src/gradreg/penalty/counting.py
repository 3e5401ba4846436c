"""The regularized loss as an object, for loops that have no step number at hand."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gradreg.calling.targets import Target
from gradreg.checks.scalars import check_choice, check_integer, check_number, check_switch, shown
from gradreg.checks.tensors import check_layout, check_per_image
from gradreg.defaults import on_the_host
from gradreg.errors import ConfigError, did_you_mean
from gradreg.losses import cross_entropy
from gradreg.norms import Threat
from gradreg.penalty.loss import regularized_loss
from gradreg.penalty.options import check_functions
from gradreg.penalty.passes import BatchNormMode, Model
from gradreg.penalty.result import RegularizedLoss

_OPTIONS = [each.name for each in signature(regularized_loss).parameters.values() if each.kind is each.KEYWORD_ONLY]


class GradientPenalty:
    """`regularized_loss` with its options given once; it counts its own steps, as `lazy` and `fraction` need.

        penalty = gradreg.GradientPenalty(threat="linf", eps=8 / 255, lazy=4)
        penalty(model, x, y).loss.backward()

    A call without gradients (validation under `torch.no_grad()`) is not a step, and measures the whole penalty. Under
    gradient accumulation all micro-batches of an update are to be penalised or none: `follow(optimizer)` counts updates
    instead of calls; without it pass `advance=False` for all but the last micro-batch. `state_dict` and
    `load_state_dict` carry the count through a checkpoint.
    """

    @on_the_host
    def __init__(self, **options: Any) -> None:
        if "step" in options:
            raise ConfigError("GradientPenalty counts its own steps; leave step= out, or use regularized_loss.")
        for name in options:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or f"; choose one of {', '.join(_OPTIONS)}"
                raise ConfigError(f"There is no option {name!r}{hint}.")
        self.options, self.steps = options, 0
        self._follows: Literal["nothing", "an optimizer", "another's"] = "nothing"
        # The options are checked now, and not at the first batch: a toy batch is put through them.
        h = options.get("h")
        toy = {name: value for name, value in options.items() if name not in ("criterion", "output", "bn")}
        check_functions(options.get("criterion", cross_entropy), options.get("output"))
        check_choice("bn", options.get("bn", "train"), get_args(BatchNormMode))
        if isinstance(h, Tensor):
            check_layout("h", h)
        if isinstance(h, Tensor) and h.ndim == 1:
            toy["h"] = h[:1].expand(2)
        if isinstance(options.get("noise"), Tensor):
            raise ConfigError("noise must be a radius, drawn anew at every step; got a tensor, for regularized_loss.")
        # Not drawn here: that would move the global stream.
        check_number("noise", toy.pop("noise", 0.0), least=0)
        if isinstance(options.get("threat"), Threat):
            # A norm with parameters fits the images that it was made for, and so does a length in it.
            toy["threat"] = "l2"
            if toy.get("h") is not None:
                check_per_image("h", toy["h"], 2, above=0)
            toy["h"] = 0.01
        regularized_loss(nn.Identity(), torch.eye(2), torch.zeros(2, dtype=torch.int64), step=0, **toy)

    def __call__(self, model: Model, x: Tensor, y: Target, *, advance: bool = True) -> RegularizedLoss:
        """The loss of a batch at this step; what it returns is `regularized_loss`'s."""
        check_switch("advance", advance)
        if self._follows == "another's":
            raise ConfigError("A copy of a GradientPenalty follows no optimizer: call its follow(optimizer).")
        if not torch.is_grad_enabled():
            return regularized_loss(model, x, y, **{**self.options, "lazy": 1, "fraction": 1.0})
        out = regularized_loss(model, x, y, step=self.steps, **self.options)
        self.steps += advance and self._follows == "nothing"
        return out

    def follow(self, optimizer: Optimizer) -> Self:
        """Count the updates of an optimizer instead of calls, however many micro-batches each of them has.

        Updates that a gradient scaler skips are not counted. Wrapped optimizers (Accelerate's, Lightning's) are fine.
        """
        wrapped: Any = optimizer
        while isinstance(getattr(wrapped, "optimizer", None), Optimizer):
            wrapped = wrapped.optimizer
        if not isinstance(wrapped, Optimizer):
            raise ConfigError(f"follow needs a torch.optim.Optimizer; got {shown(optimizer)}.")
        if self._follows == "an optimizer":
            raise ConfigError("This GradientPenalty follows an optimizer already: make another one for this one.")
        self._follows = "an optimizer"
        wrapped.register_step_post_hook(self._updated)
        return self

    def _updated(self, *_: object) -> None:
        self.steps += 1

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which the optimizer does not know."""
        return {**vars(self), "_follows": "nothing" if self._follows == "nothing" else "another's"}

    def state_dict(self) -> dict[str, int]:
        """How many steps were made."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from there."""
        if not isinstance(state, Mapping) or "steps" not in state:
            raise ConfigError(f"The state must be one that GradientPenalty.state_dict returned; got {shown(state)}.")
        self.steps = check_integer("steps", state["steps"], least=0)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"GradientPenalty({given}), {self.steps} steps"
