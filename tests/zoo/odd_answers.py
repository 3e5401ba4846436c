"""Models that answer differently each time, depending on the batch, or in forms and numbers that are no help."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from kinds import (
    A_MODULE,
    DETACHED,
    MIXES,
    NOT_FINITE,
    OUTPUT,
    PRECISE,
    RANDOM,
    SATURATED,
    TRAINED,
    TRAINING,
    ZERO,
    Odd,
    around,
    convolutional,
    linear,
    seeded,
    straight,
)
from torch import Tensor, nn

# It is randomised.


class Noisy(nn.Module):
    """Adds noise from a stream of its own or a global one."""

    def __init__(self, draw: Callable[["Noisy", Tensor], Any]) -> None:
        super().__init__()
        self.net, self.draw = linear(), draw
        self.torch, self.numpy, self.python = (
            torch.Generator().manual_seed(1),
            np.random.default_rng(1),
            random.Random(1),
        )
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 0.1 * self.draw(self, x))
        return logits


def _reseeded(of: Noisy, x: Tensor) -> Tensor:
    """The same numbers in every call, but others for every place in the batch."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


def _left_in_train_mode() -> nn.Module:
    net = nn.Sequential(nn.Dropout(0.3), linear()).eval()
    net[0].train()
    return net


_DRAWS: dict[str, Callable[[Noisy, Tensor], Any]] = {
    "own generator": lambda of, x: torch.randn(x.shape, generator=of.torch),
    "own NumPy generator": lambda of, x: torch.from_numpy(of.numpy.standard_normal(x.shape, dtype=np.float32)),
    "own Python generator": lambda of, x: of.python.random(),
    "global stream": lambda of, x: torch.randn_like(x),
    "NumPy's global stream": lambda of, x: torch.from_numpy(np.random.standard_normal(x.shape)).float(),
    "Python's global stream": lambda of, x: random.random(),
}
RANDOMISED = {
    **{f"noise of the {name}": Odd(partial(Noisy, draw), None, {"": RANDOM}) for name, draw in _DRAWS.items()},
    "noise of a fixed seed": Odd(lambda: Noisy(_reseeded), None, {"": MIXES}),
    "dropout by function": Odd(around(lambda net, x: net(F.dropout(x, 0.2))), None, {"": RANDOM}),
    "dropout left in train mode": Odd(_left_in_train_mode, None, {"": TRAINING}),
    "dropout left in train mode behind a function": Odd(
        lambda: (lambda net: lambda x: net(x))(_left_in_train_mode()),
        None,
        {"": RANDOM, "fit": A_MODULE},
    ),
}

# Its images see each other.


def _batch_statistics() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48, track_running_stats=False), linear()[1]).eval()


def _in_train_mode_behind_a_function() -> Any:
    net = convolutional().train()
    return lambda x: net(x)


_OF_THE_BATCH = "The model (failed on|must accept) images of"
_BIAS = torch.tensor([1.0, 0.0, 0.0, 0.0])
MIXING = {
    "batch statistics": Odd(_batch_statistics, None, {"": MIXES, "inspect_image": "more than 1 value per channel"}),
    "group norm over the batch": Odd(
        around(lambda net, x: net(F.group_norm(x.reshape(1, -1, 4, 4), 1).view_as(x))), None, {"": MIXES}
    ),
    "minus the first image": Odd(around(lambda net, x: net(x - 0.3 * x[:1])), None, {"": MIXES}),
    "minus the last image": Odd(around(lambda net, x: net(x - 0.3 * x[-1:])), None, {"": MIXES}),
    "the size of the batch": Odd(around(lambda net, x: net(x) + len(x) * _BIAS), None, {"": MIXES}),
    "the place in the batch": Odd(
        around(lambda net, x: net(x) + torch.arange(len(x))[:, None] * _BIAS), None, {"": MIXES}
    ),
    "reversed": Odd(around(lambda net, x: net(x).flip(0)), None, {"": MIXES}),
    "softmax over the batch": Odd(around(lambda net, x: net(x).log_softmax(0)), None, {"": MIXES}),
    "batch norm in train mode behind a function": Odd(
        _in_train_mode_behind_a_function, None, {"": MIXES, "fit": A_MODULE}
    ),
    "a fixed batch size": Odd(
        around(lambda net, x: net(x.view(10, 3, 4, 4))), None, {"": _OF_THE_BATCH, "diagnose": _OF_THE_BATCH}
    ),
}

# What it returns.


class Detached(nn.Module):
    """Its forward is decorated."""

    def __init__(self, how: Callable[[], Any]) -> None:
        super().__init__()
        self.net = linear()
        self._forward = how()(self.net.forward)
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self._forward(x)


def _switches_off(net: nn.Module, x: Tensor) -> Any:
    torch.set_grad_enabled(False)
    return net(x)


class Formed(nn.Module):
    """Hands its logits out in some form."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.form = linear(), form
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self.form(self.net(x))


_NO_GRADIENT = {"": DETACHED, "certify": "", **dict.fromkeys(TRAINED, DETACHED)}
_FORMS: dict[str, Callable[[Tensor], Any]] = {
    "a tuple": lambda z: (z,),
    "None": lambda z: None,
    "(N, 1)": lambda z: z[:, :1],
    "(N,)": lambda z: z[:, 0],
    "(N, classes, 1, 1)": lambda z: z[:, :, None, None],
    "its transpose": lambda z: z.T,
    "whole numbers": lambda z: (100 * z).long(),
    "truth values": lambda z: F.one_hot(z.argmax(1), 4) > 0,
    "complex numbers": lambda z: z + 0j,
    "an array": lambda z: z.detach().numpy(),
    "a sparse tensor": lambda z: z.to_sparse(),
    "a text": lambda z: "cat",
    "a mapping of a mapping": lambda z: {"out": {"logits": z}},
}
_OTHERWISE = {"": "when a gradient is asked for", **dict.fromkeys(TRAINED, "differ by|otherwise")}
_ONE_CLASS = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 1)).eval())
OUTPUTS = {
    **{f"returns {name}": Odd(partial(Formed, form), None, {"*": OUTPUT}) for name, form in _FORMS.items()},
    "returns a mapping": Odd(around(lambda net, x: {"logits": net(x)}), linear, exact=True),
    "returns log probabilities": Odd(
        around(lambda net, x: net(x).log_softmax(1)), around(lambda net, x: net(x) - net(x).logsumexp(1, keepdim=True))
    ),
    "returns probabilities": Odd(
        around(lambda net, x: net(x).softmax(1)), None, {"": "The model returns probabilities"}
    ),
    "returns half precision": Odd(around(lambda net, x: net(x).half()), None),
    "one class": Odd(_ONE_CLASS, None, {"*": OUTPUT}),
    "two classes": Odd(
        around(lambda net, x: net(x)[:, :2]), around(lambda net, x: torch.cat([net(x)[:, :1], net(x)[:, 1:2]], 1))
    ),
    "under no_grad": Odd(lambda: Detached(torch.no_grad), None, _NO_GRADIENT),
    "under inference_mode": Odd(lambda: Detached(torch.inference_mode), None, _NO_GRADIENT),
    "another head for gradients": Odd(
        around(lambda net, x: -net(x) if x.requires_grad else net(x)), None, _OTHERWISE, may_answer=True
    ),
    "switches gradients off": Odd(around(_switches_off), None, _NO_GRADIENT),
}

# Numbers that are no help.


def _far(value: float) -> Odd:
    """Of this value where a pixel is bright, away from the images."""
    make = around(lambda net, x: torch.where((x.amax((1, 2, 3)) > 0.71)[:, None], value, net(x)))
    return Odd(make, linear, _FAR, not_compared=("diagnose",), may_answer=True)


_UNTIED = {
    "fit": A_MODULE,
    **dict.fromkeys(
        (
            "regularized_loss",
            "GradientPenalty",
            "estimate_regularity",
            "bounds",
            "clever",
            "curvature",
            "evaluate",
            "inspect_image",
        ),
        DETACHED,
    ),
}
_FAR = {"": NOT_FINITE, "regularized_loss": "", "GradientPenalty": "", "fit": "", "curvature": ""}
NUMBERS = {
    "constant": Odd(
        around(lambda net, x: 0 * net(x)),
        around(lambda net, x: net(x) - net(x)),
        {"estimate_regularity": ZERO, "bounds": ZERO},
    ),
    "constant without a gradient": Odd(lambda: lambda x: x.new_zeros(len(x), 4), None, _UNTIED),
    "whole numbers as logits": Odd(around(lambda net, x: straight(3 * net(x), (3 * net(x)).round())), None, PRECISE),
    "bf16 head": Odd(around(lambda net, x: straight(net(x), net(x).bfloat16().float())), None),
    "saturated": Odd(around(lambda net, x: 1e4 * net(x)), None, SATURATED),
    "huge logits": Odd(around(lambda net, x: 1e37 * net(x)), None, SATURATED),
    "tiny logits": Odd(around(lambda net, x: 1e-30 * net(x)), None),
    "not finite on some": Odd(
        around(lambda net, x: net(x) / (x[:, 0, 0, 0] > 0.45)[:, None]), None, {"": NOT_FINITE, "fit": NOT_FINITE}
    ),
    "not a number away from the image": _far(torch.nan),
    "infinite away from the image": _far(torch.inf),
    "a masked class": Odd(
        around(lambda net, x: torch.cat([net(x), torch.full((len(x), 1), -1e9)], 1)),
        linear,
        exact=True,
        not_compared=("Classifier", "curvature"),  # one more logit, and one more term in a sum over rivals
    ),
    "masked classes in half precision": Odd(
        around(lambda net, x: torch.cat([net(x), torch.full((len(x), 2), -1e4)], 1).half()), None
    ),
    "a level of fifty": Odd(
        around(lambda net, x: net(x) + 50), linear, rtol=0.02, exact=True, not_compared=("Classifier",)
    ),
    "a class of minus infinity": Odd(
        around(lambda net, x: torch.cat([net(x), torch.full((len(x), 1), -torch.inf)], 1)), None, {"": NOT_FINITE}
    ),
}
