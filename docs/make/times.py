"""What `python -m bench steps --json FILE` found: how long a training step of each recipe takes, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from bench.recipe import step_key
from docs.make.measured import written_by
from gradreg.reading import read_json

FILE = "results/bench/steps.json"


@dataclass(frozen=True)
class StepTimes:
    """Seconds per step by the recipe, all of one measurement."""

    found: Mapping[str, float]
    about: str
    """How and where they were measured."""

    @classmethod
    def of(cls, root: Path) -> "StepTimes":
        """Those of a checkout; none if they were not measured yet."""
        path = root / FILE
        if not path.exists():
            return cls({}, "No time of a step has been measured yet.")
        with written_by("steps", path):
            record = read_json(path)
            found = {step_key(each["settings"]): float(each["seconds"]) for each in record["steps"]}
            if not all(isfinite(seconds) and seconds > 0 for seconds in found.values()):
                raise ValueError("seconds that are not above 0")
            machine, rounds, threads = record["machine"], record["options"]["rounds"], record["options"]["threads"]
            where = f"{machine['processor']}, {threads} thread(s), commit {machine['commit']}"
        return cls(found, f"Steps timed side by side, best of {rounds} rounds, on {where}.")

    def seconds(self, recipe: Mapping[str, Any]) -> float | None:
        """Of a step of the recipe, whatever its seed and epochs; None if it was not measured."""
        return self.found.get(step_key(recipe))
