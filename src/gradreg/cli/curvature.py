"""`gradreg curvature`: the largest input-Hessian eigenvalue over test images, and what follows from it."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gradreg.bounds import Curvature as Measured
from gradreg.bounds import curvature, quadratic_strength
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Natural, Positive
from gradreg.cli.arguments import Inline, ModelArguments, ModelName, say
from gradreg.evaluation.inputs import select


@dataclass(frozen=True)
class Curvature:
    """Measure the curvature of the soft margin in l2: for networks without kinks, and heuristic between the images."""

    model: tyro.conf.Positional[ModelName]
    named: Annotated[ModelArguments, Inline] = field(default_factory=ModelArguments)
    images: AtMost = 100
    """Random test images to measure it at."""
    sharpness: Positive = 10.0
    """Of the soft margin; a sharper one bends more."""
    delta: Positive | None = None
    """The δ of an attacker who pays ‖v‖²/(2δ): also print λ = δ/(1 − δC)."""
    seed: Natural = 0
    """Chooses the images and the directions that the search begins with."""

    def __post_init__(self) -> None:
        check_fields(self)

    def run(self) -> None:
        with self.named.opened(self.model) as (opened, device):
            test = opened.data.test
            index = select(len(test), self.images, self.seed)
            x, y = test.floats(index).to(device), test.labels[index].to(device)
            found = curvature(opened.model, x, y, sharpness=self.sharpness, seed=self.seed)
            console, largest = Console(), float((found.eigenvalue + found.residual).max())
            console.print(_table(found, largest, f"{opened.subject.name}, {len(x)} images, seed {self.seed}"))
            if not bool(found.converged.all()):
                say(console, f"{int((~found.converged).sum())} eigenvalues did not converge: see their residuals.")
            if self.delta is not None:
                lam = quadratic_strength(self.delta, max(largest, 0.0))
                say(
                    console, f"An attacker with δ = {self.delta:g} gains at most (λ/2)‖∇ℓ‖², λ = {lam:.4g} (Prop. 3.1)."
                )


def _table(found: Measured, largest: float, title: str) -> Table:
    table = Table(title=title, title_style="", caption="radii are heuristic: curvature is measured at the images only")
    for heading in ("", "mean", "median", "largest"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    rows: dict[str, Tensor] = {
        "largest eigenvalue C": found.eigenvalue,
        "‖∇ℓ‖₂ of the soft margin": found.grad_norm,
        "radius by its own C": found.bound(),
        "radius by the largest C": found.bound(largest),
    }
    for name, values in rows.items():
        table.add_row(name, *(f"{float(each):.4g}" for each in (values.mean(), values.median(), values.max())))
    return table
