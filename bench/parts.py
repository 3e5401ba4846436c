"""A measurement in parts: some images at a time, each part kept as it ends, so that it may be interrupted."""

import re
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.attacks import Group
from bench.contenders import Setting, Trial, fixed_plan, minimal_plan
from bench.peers import Outcome
from gradreg.fingerprints import images_key, model_key
from gradreg.ledger import Ledger


@dataclass(frozen=True)
class _Contender:
    """An attack on the images, part by part; `results` is where its outcome on all of them goes."""

    name: str
    trial: Trial | str
    results: dict[str, Outcome | str]
    kind: str

    def part(self, number: int) -> str:
        """What the ledger calls a part of it."""
        return f"{self.kind}-{re.sub('[^A-Za-z0-9]+', '-', self.name)}-{number}"


def measure_group(
    group: Group, setting: Setting, x: Tensor, y: Tensor, *, chunk: int = 20, work: Path | None = None
) -> Generator[str, None, None]:
    """Run everybody on `chunk` images, then on the next: what disturbs the machine disturbs all alike.

    Yields what is about to run. What the folder `work` has is not run again; None keeps nothing.
    """
    parts = list(zip(x.split(chunk), y.split(chunk), strict=True))
    contenders = _contenders(group, setting)
    found: dict[str, Outcome] = {}
    with Ledger(work, _about(setting, x, y, chunk)) as ledger:
        for number, (some, labels) in enumerate(parts):
            for contender in contenders:
                part, trial = contender.part(number), contender.trial
                kept: Outcome | None = ledger.load(part, Outcome)
                if kept is None and not isinstance(trial, str):
                    yield f"{group.network}, {group.threat}, part {number + 1} of {len(parts)}: {contender.name}"
                    kept = trial(some, labels)
                    ledger.save(part, kept)
                if kept is not None:
                    found[part] = kept
    for contender in contenders:
        done = [found[part] for part in map(contender.part, range(len(parts))) if part in found]
        missing = isinstance(contender.trial, str) and len(done) < len(parts)
        contender.results[contender.name] = contender.trial if missing else joined(done)  # type: ignore[assignment]


def joined(parts: Sequence[Outcome]) -> Outcome:
    """The outcome on all images: seconds add up, counts are means over the images."""
    sizes = [len(part.distance) for part in parts]
    most = [part.most for part in parts if part.most is not None]

    def mean(values: Sequence[float]) -> float:
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / sum(sizes)

    return Outcome(
        torch.cat([part.distance for part in parts]),
        mean([part.forwards for part in parts]),
        mean([part.backwards for part in parts]),
        max(most) if len(most) == len(parts) else None,
        sum(part.cpu for part in parts),
        sum(part.wall for part in parts),
        "; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )


def _contenders(group: Group, setting: Setting) -> list[_Contender]:
    return [
        _Contender(name, trial, results, kind)
        for kind, results, plan in (
            ("distance", group.minimal, minimal_plan(setting)),
            ("radius", group.fixed, fixed_plan(setting)),
        )
        for name, trial in plan.items()
    ]


def _about(setting: Setting, x: Tensor, y: Tensor, chunk: int) -> dict[str, str]:
    return {
        "weights": model_key(setting.model),
        "images": images_key(x, y),
        "chunk": str(chunk),
        "threat": setting.threat,
        "eps": str(setting.eps),
        "seed": str(setting.seed),
        "lengths": str(asdict(setting.sizes)),
    }
