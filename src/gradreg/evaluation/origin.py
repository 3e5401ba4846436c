"""Which code on which machine an evaluation stands for."""

from datetime import UTC, datetime

import torch

import gradreg
from gradreg.evaluation.record import Origin
from gradreg.provenance import commit, hardware


def origin(device: torch.device) -> Origin:
    """This code on this machine, now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Origin(gradreg.__version__, torch.__version__, commit(), hardware(device), now)
