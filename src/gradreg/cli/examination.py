"""From a model to what is known of it: `gradreg evaluate`, `diagnose`, `inspect` and `report`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import tyro


@dataclass(frozen=True, kw_only=True)
class OfModel:
    """How a model and its images are named on the command line."""

    data: str | None = None
    """mnist5k, fashion-mnist, cifar10 or folder:PATH; a run knows its own."""
    architecture: str | None = None
    """The network that a weights file is for: any name that `gradreg.build` knows."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An option of that network, as in --set activation=gelu."""
    seed: int = 0
    device: str = "auto"
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def named(self) -> "Named":
        """The same as the functions behind the commands take it."""
        return {
            "data": self.data,
            "architecture": self.architecture,
            "options": self.set,
            "seed": self.seed,
            "device": self.device,
            "data_dir": self.data_dir,
        }


class Named(TypedDict):
    """What `OfModel.named` returns."""

    data: str | None
    architecture: str | None
    options: tuple[str, ...]
    seed: int
    device: str
    data_dir: Path | None


@dataclass(frozen=True, kw_only=True)
class Evaluate(OfModel):
    """Examine a model: attacks, bounds, diagnosis and certificates, an image a row; the same command continues it."""

    model: tyro.conf.Positional[str]
    """A run directory, a name that `gradreg networks` lists, a .safetensors file (with --architecture), timm:NAME or
    package.module:function."""
    threat: str = "l2,linf"
    """l2, linf or l1, or several of them with commas between."""
    images: int = 1000
    """Random test images to look at; all of them if there are fewer."""
    attacks: str = "standard"
    """A suite (standard, paper or quick), or attacks with commas between."""
    regularity: Literal["ascent", "paper", "local"] = "ascent"
    """How the bounds' L and ω are estimated."""
    calibration_images: int = 640
    """Training images to estimate them on; 160 at least."""
    smoothing: str = ""
    """Standard deviations of the noise to certify with, as 0.25,0.5; none unless told."""
    samples: int = 100_000
    """The most noisy images that a certificate may take."""
    autoattack: str = ""
    """Radii to confirm by the reference AutoAttack, as linf=8/255,l2=0.5: needs pyautoattack, and much time."""
    autoattack_version: Literal["standard", "plus"] = "standard"
    out: Path | None = None
    """The folder to write; else RUN/evaluation or evaluations/NAME."""
    batch_size: int = 100

    def run(self) -> None:
        from rich.console import Console

        from gradreg.cli.evaluate import carry_out

        status = carry_out(
            self.model,
            threat=self.threat,
            images=self.images,
            attacks=self.attacks,
            regularity=self.regularity,
            calibration_images=self.calibration_images,
            smoothing=self.smoothing,
            samples=self.samples,
            autoattack=self.autoattack,
            autoattack_version=self.autoattack_version,
            out=self.out,
            batch_size=self.batch_size,
            console=Console(),
            **self.named(),
        )
        sys.exit(status)


@dataclass(frozen=True, kw_only=True)
class Diagnose(OfModel):
    """Is a model's robustness real? Exit status 0: no sign of masking, 1: suspicious or broken, 3: a proven bug."""

    model: tyro.conf.Positional[str]
    """As for `gradreg evaluate`."""
    threat: Literal["l1", "l2", "linf"] = "linf"
    eps: float | None = None
    """The radius of interest; else 8/255 (linf), 0.5 (l2) or 12 (l1)."""
    images: int = 128
    """Random test images to look at."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """A JSON file for the flags and the verdict."""
    sound: bool = False
    """Hold radii that are proved against attacks: needs auto_LiRPA, and minutes."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.cli.diagnose import diagnose_named

        status = diagnose_named(
            self.model,
            threat=self.threat,
            eps=self.eps,
            images=self.images,
            output=self.output,
            sound=self.sound,
            console=Console(),
            **self.named(),
        )
        sys.exit(status)


@dataclass(frozen=True, kw_only=True)
class Inspect(OfModel):
    """Look at one image: its nearest adversarial image by each attack, its bounds and its certificate, as PNG."""

    image: tyro.conf.Positional[str]
    """The path of an image of the model's input size, or a position in the test set."""
    model: str
    """As for `gradreg evaluate`."""
    threat: Literal["l1", "l2", "linf"] = "l2"
    attacks: str | None = None
    """Names with commas between; else every attack on the threat."""
    label: str | None = None
    """The true class, by name or number; else the test set's, or for a file the model's own answer."""
    sigma: float = 0.25
    """Noise of the smoothed classifier that is certified."""
    samples: int = 10_000
    """Noisy images for the certificate, at most."""
    regularity: Path | None = None
    """A saved Regularity for the bounds; else one is estimated around the image."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("inspection.png")

    def run(self) -> None:
        from rich.console import Console

        from gradreg.cli.inspect import inspect_named

        status = inspect_named(
            self.image,
            self.model,
            label=self.label,
            threat=self.threat,
            attacks=None if self.attacks is None else self.attacks.replace(" ", "").split(","),
            sigma=self.sigma,
            n=self.samples,
            regularity=self.regularity,
            output=self.output,
            console=Console(),
            **self.named(),
        )
        sys.exit(status)


@dataclass(frozen=True)
class Report:
    """Put evaluations side by side: one HTML page, or tables as Markdown, LaTeX, CSV or JSON, and figures."""

    evaluations: tyro.conf.Positional[tuple[Path, ...]]
    """What `gradreg evaluate` wrote: folders, or the evaluation.json in them."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; else report.html, and text formats to stdout."""
    format: Literal["html", "md", "tex", "csv", "json"] | None = None
    """Else what the ending of the output says."""
    figures: Path | None = None
    """A folder to draw figures to, as SVG, PNG and PDF."""
    paper: bool = False
    """Show the paper's own figures beside, marked as quoted."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.report.command import carry_out

        sys.exit(carry_out(self.evaluations, self.output, self.format, self.figures, self.paper, Console()))
