"""From a model to what is known of it: `gradreg evaluate`, `diagnose`, `inspect` and `report`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Evaluate:
    """Examine a model: attacks, bounds, diagnosis and certificates, an image a row; the same command continues it."""

    model: tyro.conf.Positional[str]
    """A run directory, a .safetensors file (with --architecture), timm:NAME or package.module:function."""
    data: str | None = None
    """mnist5k, fashion-mnist, cifar10 or folder:PATH; a run knows its own."""
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
    seed: int = 0
    out: Path | None = None
    """The folder to write; else RUN/evaluation or evaluations/NAME."""
    architecture: str | None = None
    """The network that a weights file is for: any name that `gradreg.build` knows."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An option of that network, as in --set activation=gelu."""
    batch_size: int = 100
    device: str = "auto"
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.evaluation.command import carry_out

        status = carry_out(
            self.model,
            data=self.data,
            threat=self.threat,
            images=self.images,
            attacks=self.attacks,
            regularity=self.regularity,
            calibration_images=self.calibration_images,
            smoothing=self.smoothing,
            samples=self.samples,
            seed=self.seed,
            out=self.out,
            device=self.device,
            data_dir=self.data_dir,
            batch_size=self.batch_size,
            architecture=self.architecture,
            options=self.set,
            console=Console(),
        )
        sys.exit(status)


@dataclass(frozen=True)
class Diagnose:
    """Is a model's robustness real? Exit status 0: no sign of masking, 1: suspicious or broken, 3: a proven bug."""

    model: tyro.conf.Positional[str]
    """As for `gradreg evaluate`."""
    data: str | None = None
    """mnist5k, fashion-mnist, cifar10 or folder:PATH; a run knows its own."""
    threat: Literal["l1", "l2", "linf"] = "linf"
    eps: float | None = None
    """The radius of interest; else 8/255 (linf), 0.5 (l2) or 12 (l1)."""
    images: int = 128
    """Random test images to look at."""
    seed: int = 0
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """A JSON file for the flags and the verdict."""
    architecture: str | None = None
    """The network that a weights file is for: any name that `gradreg.build` knows."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An option of that network, as in --set activation=gelu."""
    device: str = "auto"
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.diagnosis.command import diagnose_named

        status = diagnose_named(
            self.model,
            data=self.data,
            threat=self.threat,
            eps=self.eps,
            images=self.images,
            seed=self.seed,
            output=self.output,
            device=self.device,
            data_dir=self.data_dir,
            architecture=self.architecture,
            options=self.set,
            console=Console(),
        )
        sys.exit(status)


@dataclass(frozen=True)
class Inspect:
    """Look at one image: its nearest adversarial image by each attack, its bounds and its certificate, as PNG."""

    image: tyro.conf.Positional[str]
    """The path of an image of the model's input size, or a position in the test set."""
    model: str
    """As for `gradreg evaluate`."""
    data: str | None = None
    """The data set whose classes the model knows; a run knows its own."""
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
    seed: int = 0
    architecture: str | None = None
    """The network that a weights file is for: any name that `gradreg.build` knows."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An option of that network, as in --set activation=gelu."""
    device: str = "auto"
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.inspection.command import inspect_named

        status = inspect_named(
            self.image,
            self.model,
            data=self.data,
            label=self.label,
            threat=self.threat,
            attacks=None if self.attacks is None else self.attacks.replace(" ", "").split(","),
            sigma=self.sigma,
            n=self.samples,
            regularity=self.regularity,
            output=self.output,
            seed=self.seed,
            device=self.device,
            data_dir=self.data_dir,
            architecture=self.architecture,
            options=self.set,
            console=Console(),
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
