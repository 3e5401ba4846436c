"""A randomised model as a classifier that does not change: the average over a fixed number of fixed draws."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import log
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from gradreg.calling.answers import OUTPUT, Model, Output, check_logits, read
from gradreg.calling.contents import contents
from gradreg.calling.streams import Generator, RandomState, global_streams
from gradreg.checks.objects import check_function
from gradreg.checks.scalars import check_choice, check_integer, shown
from gradreg.errors import ModelError
from gradreg.precision import at_least_single
from gradreg.randomness import generator

# As many forwards per answer: more would not end.
_MOST_DRAWS = 1_000_000
Of = Literal["probabilities", "logits"]


class Averaged(nn.Module):
    """The classifier that averages `draws` answers of a randomised model, always by the same draws.

    The logits are the logarithm of the mean probability, so that their softmax is that mean; with `of="logits"` the
    mean logits. Draw number i seeds torch, NumPy, Python and the model's own generators by (seed, i), for each image
    anew: an answer depends neither on the batch nor on what was asked before, and no stream of the caller moves.

    An attack on it is one on these draws. So every adversarial image is asked again under fresh ones, others for each
    image: see `AttackResult.fresh`. A forward costs `draws` forwards of the model, one image at a time. It is never
    compiled: compile what it averages, `Averaged(torch.compile(model))`.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Any],
        draws: int = 20,
        seed: int = 0,
        *,
        of: Of = "probabilities",
        output: Output | None = None,
    ) -> None:
        super().__init__()
        if not callable(model):
            raise ModelError(f"model must be an nn.Module or a function from images to logits; got {shown(model)}.")
        self.model, self.output = model, output
        if output is not None:
            check_function("output", output, OUTPUT)
        self.draws = check_integer("draws", draws, least=1, most=_MOST_DRAWS)
        self.seed = check_integer("seed", seed, least=0)
        self.of = check_choice("of", of, ("probabilities", "logits"))
        self.training = bool(getattr(model, "training", False))  # in the mode of what it wraps
        self._keys: Sequence[tuple[int, ...]] = [(draw,) for draw in range(self.draws)]

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the average, image by image."""
        if torch.compiler.is_compiling():
            # The compiler cannot follow the random streams of NumPy and Python.
            averaged: Tensor = torch.compiler.disable(Averaged._average)(self, x)
            return averaged
        return self._average(x)

    def _average(self, x: Tensor) -> Tensor:
        streams = [*global_streams(), *contents(self.model)[1]]
        before = RandomState.now(x.device, streams)
        # `replayed` puts every stream back to where it was, whatever is seeded inside.
        with before.replayed():
            # No images have no draws; what the model answers to them has its number of classes all the same.
            found = [self._of_some(part, streams) for part in (x.split(1) if len(x) else (x,))]
        if len(x) and len(self._keys) > 1 and all(alike for _, alike in found):
            self._refuse_dropout_that_is_off()
        return torch.cat([logits for logits, _ in found])

    def _refuse_dropout_that_is_off(self) -> None:
        layers = (each for each in contents(self.model)[0] if isinstance(each, _DropoutNd))
        if any(layer.p > 0 and not layer.training for layer in layers):
            raise ModelError(
                "All draws of the averaged model are the same: eval mode switched its dropout off. Put the dropout "
                "layers back in train mode, and pass Averaged a function: lambda x: model(x)."
            )

    def _of_some(self, x: Tensor, streams: list[Generator]) -> tuple[Tensor, bool]:
        """Logits of the average for an image or none, and whether all draws were the same."""
        answers = []
        for key in self._keys:
            _seed(streams, x.device, self.seed, *key)
            logits = check_logits(read(self.model(x), self.output), len(x))
            answers.append(logits.to(at_least_single(logits.dtype)))
        every = torch.stack(answers)
        alike = not every.is_meta and bool((every == every[:1]).all())
        if self.of == "logits":
            return every.mean(0), alike
        return every.log_softmax(-1).logsumexp(0) - log(len(self._keys)), alike

    def extra_repr(self) -> str:
        """What it averages, as `print(model)` shows it."""
        return f"draws={self.draws}, seed={self.seed}, of={self.of!r}"


def averages(model: Model) -> list[Averaged]:
    """The averaged models in a model, or those that a function refers to."""
    return [module for module in contents(model)[0] if isinstance(module, Averaged)]


@contextmanager
def fresh_draws(model: Model, image: int, single: int | None = None) -> Iterator[None]:
    """Inside, averaged models ask draws that they never showed, and that belong to the image of that key.

    As many as they average; with `single`, that one of them alone.
    """
    found = averages(model)
    before = [module._keys for module in found]
    for module in found:
        chosen = range(module.draws) if single is None else (single,)
        module._keys = [(module.draws + draw, image) for draw in chosen]
    try:
        yield
    finally:
        for module, keys in zip(found, before, strict=True):
            module._keys = keys


def _seed(streams: list[Generator], device: torch.device, *numbers: int) -> None:
    number = generator("averaged", *numbers).initial_seed() % (1 << 32)
    if device.type in ("cpu", "meta"):
        # `torch.manual_seed` notes a stack trace for every kind of accelerator that is not in use, each time.
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)
    for stream in streams:
        if isinstance(stream, np.random.Generator):
            stream.bit_generator.state = type(stream.bit_generator)(number).state
        elif isinstance(stream, torch.Generator):
            stream.manual_seed(number)
        else:
            stream.seed(number)
