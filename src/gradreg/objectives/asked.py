"""A step of an objective as users call it, from an objective or a loop of their own: what it is given is checked first.

Training calls it with batches that it has checked itself.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.calls import is_called_by_gradreg
from gradreg.checks.objects import check_kind
from gradreg.checks.tensors import check_pixels
from gradreg.objectives.base import Moment, Outcome
from gradreg.penalty.devices import same_device
from gradreg.penalty.options import check_pair

_Step = TypeVar("_Step", bound=Callable[..., Outcome])


def asked(step: _Step) -> _Step:
    """Check model, images, targets and moment before the step, unless gradreg itself takes it."""

    @wraps(step)
    def checked(self: Any, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        if torch.compiler.is_compiling() or is_called_by_gradreg():
            return step(self, model, x, y, at)
        check_kind("model", model, (nn.Module,))
        check_kind("at", at, (Moment,))
        y = check_pair(x, y, at.criterion)
        check_pixels(x)
        with same_device(model, x, y):
            return step(self, model, x, y, at)

    return cast(_Step, checked)
