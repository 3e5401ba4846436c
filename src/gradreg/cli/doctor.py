"""`gradreg doctor`."""

import sys
from dataclasses import dataclass

from gradreg import doctor
from gradreg.processes import joined

_WIDTH = 32


@dataclass(frozen=True)
class Doctor:
    """Say what this installation consists of and check that it computes what it should.

    Exit status 0, or 1 if a self-check fails.
    """

    device: str = "auto"
    """Where the self-checks compute."""

    def run(self) -> None:
        with joined(self.device) as processes:
            _section("This installation", doctor.facts(processes.device))
            _section("Optional packages", doctor.extras())
            sys.stdout.write("Self-checks\n")
            failed = 0
            for check in doctor.checks(processes.device):
                failed += not check.sound
                _line(check.name, f"{'ok' if check.sound else 'FAILED'}: {check.found}")
        sys.stdout.write(f"{failed} of the self-checks failed.\n" if failed else "All self-checks hold.\n")
        sys.exit(1 if failed else 0)


def _section(title: str, lines: doctor.Lines) -> None:
    sys.stdout.write(f"{title}\n")
    for name, value in lines:
        _line(name, value)


def _line(name: str, value: str) -> None:
    sys.stdout.write(f"  {name:{_WIDTH}} {value}\n")
    sys.stdout.flush()
