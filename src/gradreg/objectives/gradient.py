"""The paper's objective: the loss plus the input gradient penalty of `gradreg.regularized_loss`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural, NotNegative, Positive, Range, UpTo1, require
from gradreg.config.fractions import radius_name
from gradreg.defaults import on_the_host
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives.asked import asked
from gradreg.objectives.base import Moment, Outcome, ball
from gradreg.penalty import regularized_loss
from gradreg.penalty.options import Method, Scale, Statistics, default_step, divides_by_root, form
from gradreg.penalty.passes import AutocastMode, BatchNormMode


@dataclass(frozen=True)
class Gradient:
    """Every option of `regularized_loss`, under its name, and how they change during training.

    The strength (λ or ε) rises from 0 over `ramp_epochs`: a penalty at full strength from the first step can pin a
    network to constant predictions. h goes linearly from `h_start` to `h` over `h_ramp_epochs`, as in CURE.
    `h_jitter` = j gives each image its own h, uniform in [(1 − j)h, (1 + j)h]: with an h as long as the threat's radius
    a fixed one invites catastrophic overfitting. `jitter` = "step" draws one h for all images of a step instead: in
    threat units (`eps`) that saves a seventh of the step, and two fifths of a compiled one.
    """

    threat: ThreatName | Threat = "l2"
    lam: NotNegative | None = None
    eps: NotNegative | None = None
    weight: NotNegative = 1.0
    squared: bool | None = None
    scale: Scale | None = None
    h: Positive | None = None
    """Default: that of `regularized_loss`, filled in as a number so that it is recorded."""
    order: Literal[1, 2] = 1
    method: Method = "fd"
    bn: BatchNormMode = "train"
    autocast: AutocastMode = "off"
    lazy: Count = 1
    fraction: UpTo1 = 1.0
    graphs: Literal[1, 2] = 1
    ramp_epochs: NotNegative = 0.0
    h_start: Positive | None = None
    h_ramp_epochs: NotNegative = 0.0
    noise: NotNegative = 0.0
    """Radius of the noise at the base point, in the threat's norm."""
    statistics: Statistics = "noisy"
    output_slope: NotNegative = 0.0
    second_step: NotNegative | None = None
    alignment: bool = False
    """Whether to log the mean cosine of the gradients at both ends of the difference."""
    omega: Natural = 0
    """In every so many of the penalised steps, log the mean of `out.omega`, for one forward; 0: never."""
    h_jitter: Annotated[float, Range(least=0, below=1, usual="a fraction of h")] = 0.0
    jitter: Literal["image", "step"] = "image"

    @on_the_host
    def __post_init__(self) -> None:
        check_fields(self)
        threat(self.threat)
        if self.h is None:
            object.__setattr__(self, "h", default_step(self.eps))
        require(
            (self.h_start is None) == (self.h_ramp_epochs == 0),
            "A ramp of h needs both h_start, its first value, and h_ramp_epochs > 0, its length.",
        )
        # The penalty itself checks which options go together, so a toy batch is put through it, in a norm that fits it.
        h = torch.full((2,), self.length) if self.h_jitter else self.length
        options = self._options(0) | {"threat": self.threat if isinstance(self.threat, str) else "l2"}
        regularized_loss(nn.Identity(), torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64), h=h, **options)

    @property
    def length(self) -> float:
        """h as a number: it is filled in when the objective is made."""
        assert self.h is not None
        return self.h

    @asked
    def __call__(self, model: nn.Module, x: Tensor, y: Target, at: Moment, /) -> Outcome:
        strength = at.ramp(self.ramp_epochs)
        options = self._options(at.step) | {"criterion": at.criterion, "output": at.output}
        options["lam" if self.eps is None else "eps"] *= strength
        out = regularized_loss(model, x, y, h=self._h(x, at), noise=self._noise(x, at), **options)
        scalars = {"clean_loss": out.clean, "penalty": out.penalty, "train_grad_norm": out.grad_norm.nanmean()}
        # A loss that falls along its own gradient is bent within h: the first sign of catastrophic overfitting.
        first = out.slope if out.first_slope is None else out.first_slope
        scalars["negative_slopes"] = _share(first < 0, first)
        if self.second_step is not None:
            scalars["second_steps"] = _share(first < self.second_step * out.grad_norm, first)
        unknown = torch.full_like(out.clean, torch.nan)
        if self.omega:
            scalars["omega"] = unknown if out.omega is None else out.omega.nanmean()
        if not self.alignment:
            return Outcome(out.loss, out.logits, scalars, out.backward)
        scalars["alignment"] = unknown

        def finish() -> None:
            out.backward()
            assert out.alignment is not None
            scalars["alignment"] = out.alignment.nanmean()

        return Outcome(out.loss, out.logits, scalars, finish)

    def describe(self) -> str:
        geometry = threat(self.threat)
        _, squared, scale = form(self.lam, self.eps, self.weight, self.squared, self.scale)
        norm = f"‖∇ℓ‖_{geometry.dual}"
        if self.eps is not None:
            weight = f"{self.weight:g} · " if self.weight != 1 else ""
            strength = f"{weight}{radius_name(self.eps)} · {norm}"
        else:
            strength = f"λ/2 · {norm}², λ = {self.lam:g}" if squared else f"λ · {norm}, λ = {self.lam:g}"
        if divides_by_root(geometry, scale):
            strength += " (over √N)"
        jitter = f" ± {100 * self.h_jitter:g} %" if self.h_jitter else ""
        differences = f"by finite differences, h = {radius_name(self.length)}{jitter}"
        way = differences if self.method == "fd" else "by double backprop"
        way += f", at images with noise within {ball(self.threat, self.noise)}" if self.noise else ""
        if self.second_step is not None:
            way += f", a second step where the slope is below {self.second_step:g} of the gradient's norm"
        way += f", plus {self.output_slope:g} times the squared change of the outputs" if self.output_slope else ""
        return f"with the input gradient penalty against {geometry.symbol} attacks: the loss ℓ plus {strength}, {way}"

    def _h(self, x: Tensor, at: Moment) -> float | Tensor:
        start = self.length if self.h_start is None else self.h_start
        h = start + (self.length - start) * at.ramp(self.h_ramp_epochs)
        if not self.h_jitter:
            return h
        if self.jitter == "step":
            return h * (1 + self.h_jitter * at.draws.number("h"))
        one_each = x.detach().flatten(1)[:, 0]
        jitter = at.draws.sample("h", one_each, lambda like, source: like.uniform_(-1, 1, generator=source))
        return h * (1 + self.h_jitter * jitter)

    def _noise(self, x: Tensor, at: Moment) -> float | Tensor:
        if not self.noise:
            return 0.0
        geometry = threat(self.threat)
        return at.draws.sample("noise", x, lambda like, source: geometry.sample(like, self.noise, source))

    def _options(self, step: int) -> dict[str, Any]:
        forms = ("threat", "lam", "eps", "weight", "squared", "scale")
        ways = ("order", "method", "bn", "autocast", "lazy", "fraction", "graphs", "statistics", "output_slope")
        looks = ("second_step", "alignment", "omega")
        return {name: getattr(self, name) for name in (*forms, *ways, *looks)} | {"step": step}


def _share(those: Tensor, values: Tensor) -> Tensor:
    """The fraction of the images with a value that are among those."""
    return those.to(values).where(~values.isnan(), torch.nan).nanmean()
