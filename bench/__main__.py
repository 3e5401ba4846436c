"""`python -m bench NAME`: gradreg, measured, by training, certify, calibration, attacks, verdict, steps, …

What a measurement does is imported when it runs.
"""

import sys
from importlib import import_module
from typing import Annotated

import tyro
from tyro.conf import subcommand

from bench.halved import HalvedOptions
from bench.options import (
    AttackOptions,
    BandOptions,
    CalibrationOptions,
    CertifyOptions,
    ClaimOptions,
    DiagnosisOptions,
    LimitOptions,
    PrecisionOptions,
    TrainingOptions,
)
from bench.steps_options import StepsOptions
from bench.verdict_options import VerdictOptions
from gradreg.errors import GradregError

Options = (
    Annotated[TrainingOptions, subcommand("training")]
    | Annotated[CertifyOptions, subcommand("certify")]
    | Annotated[CalibrationOptions, subcommand("calibration")]
    | Annotated[LimitOptions, subcommand("limits")]
    | Annotated[AttackOptions, subcommand("attacks")]
    | Annotated[PrecisionOptions, subcommand("precision")]
    | Annotated[VerdictOptions, subcommand("verdict")]
    | Annotated[StepsOptions, subcommand("steps")]
    | Annotated[BandOptions, subcommand("band")]
    | Annotated[DiagnosisOptions, subcommand("diagnosis")]
    | Annotated[ClaimOptions, subcommand("claims")]
    | Annotated[HalvedOptions, subcommand("halved")]
)
# Each has a function `show` of the options and a console.
_MODULES = {
    TrainingOptions: "bench.training",
    CertifyOptions: "bench.certify_command",
    CalibrationOptions: "bench.calibration",
    LimitOptions: "bench.limits",
    AttackOptions: "bench.attacks_command",
    PrecisionOptions: "bench.precision",
    VerdictOptions: "bench.verdict",
    StepsOptions: "bench.steps",
    BandOptions: "bench.band_command",
    DiagnosisOptions: "bench.diagnosis",
    ClaimOptions: "bench.claims.command",
    HalvedOptions: "bench.halved",
}
_ABOUT = "Measure gradreg itself, side by side with what it is compared to."


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    try:
        options = tyro.cli(Options, prog="python -m bench", args=arguments, description=_ABOUT)
        from rich.console import Console

        import_module(_MODULES[type(options)]).show(options, Console())
    except GradregError as mistake:
        sys.stderr.write(f"bench: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
