"""A measurement in parts: some images at a time, each part kept in a file as it ends, so that it may be interrupted."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.attacks import Group
from bench.contenders import Plan, Setting, fixed_plan, minimal_plan
from bench.peers import Outcome
from bench.record import write_json
from gradreg.errors import ConfigError
from gradreg.fingerprints import images_key, model_key


@dataclass(frozen=True)
class Work:
    """How many images a part has, and the folder that keeps parts; None keeps nothing."""

    chunk: int = 20
    folder: Path | None = None


class Parts:
    """The parts of one contender that have ended, in the order of the images; `about` says what they belong to."""

    def __init__(self, path: Path | None, about: dict[str, object]) -> None:
        self._path, self._about = path, about
        self.done: list[Outcome] = []
        if path is None or not path.exists():
            return
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["about"] != json.loads(json.dumps(about)):
            raise ConfigError(
                f"{path} belongs to a measurement of other networks, images or settings: give another folder with "
                "--work, or the same options."
            )
        self.done = [_outcome(part) for part in kept["parts"]]

    def add(self, part: Outcome) -> None:
        """One more has ended."""
        self.done.append(part)
        if self._path is not None:
            parts = [{**asdict(part), "distance": part.distance.tolist()} for part in self.done]
            write_json(self._path, {"about": self._about, "parts": parts})


def measure_group(group: Group, setting: Setting, x: Tensor, y: Tensor, work: Work) -> Iterator[str]:
    """Run everybody on a part of the images, then on the next: what disturbs the machine disturbs all alike.

    Yields what is about to run. What the folder has is not run again.
    """
    entries: list[tuple[dict[str, Outcome | str], Plan, dict[str, Parts]]] = []
    about = _about(setting, x, y, work.chunk)
    for kind, results, plan in (
        ("distance", group.minimal, minimal_plan(setting)),
        ("radius", group.fixed, fixed_plan(setting)),
    ):
        parts = {name: Parts(_file(work, group, kind, name), {**about, "attack": name}) for name in plan}
        entries.append((results, plan, parts))
    images = list(zip(x.split(work.chunk), y.split(work.chunk), strict=True))
    for number, (some, labels) in enumerate(images):
        for _, plan, parts in entries:
            for name, trial in plan.items():
                if not isinstance(trial, str) and len(parts[name].done) == number:
                    yield f"{group.network}, {group.threat}, part {number + 1} of {len(images)}: {name}"
                    parts[name].add(trial(some, labels))
    for results, plan, parts in entries:
        for name, trial in plan.items():
            complete = len(parts[name].done) == len(images)
            results[name] = joined(parts[name].done) if complete or not isinstance(trial, str) else trial


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


def _outcome(part: dict[str, object]) -> Outcome:
    distance = part.pop("distance")
    assert isinstance(distance, list)
    # JSON has no infinity, so a failure is null there.
    return Outcome(torch.tensor([math.inf if far is None else far for far in distance]), **part)  # type: ignore[arg-type]


def _file(work: Work, group: Group, kind: str, name: str) -> Path | None:
    if work.folder is None:
        return None
    return work.folder / f"{group.network}-{group.threat}" / f"{kind}-{re.sub('[^A-Za-z0-9]+', '-', name)}.json"


def _about(setting: Setting, x: Tensor, y: Tensor, chunk: int) -> dict[str, object]:
    return {
        "weights": model_key(setting.model),
        "images": images_key(x, y),
        "chunk": chunk,
        "threat": setting.threat,
        "eps": setting.eps,
        "seed": setting.seed,
        "lengths": asdict(setting.sizes),
    }
