"""`python -m bench verdict RUN…`: which images of a whole test set withstand `standard` attacks of one radius."""

from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from bench.record import plain_table, write_json
from bench.verdict_options import VerdictOptions
from gradreg.attacks import attack
from gradreg.data import Images
from gradreg.errors import ConfigError
from gradreg.fingerprints import images_key, model_key
from gradreg.ledger import Ledger
from gradreg.provenance import machine
from gradreg.runs import OpenedModel, open_model

WRONG, BROKEN, ROBUST = "wbr"
"""What became of an image: misclassified as it is, under attack, or not at all. A record has one letter for each."""


@dataclass(frozen=True)
class _Part:
    """Some images, as the ledger keeps them."""

    letters: str
    propagations: float
    seconds: float


def verdict(opened: OpenedModel, options: VerdictOptions, work: Path | None) -> dict[str, Any]:
    """The record of one network, part by part; what the folder `work` has is not attacked again."""
    x, y, rows = _images(opened, options)
    about = {
        "weights": model_key(opened.model),
        "images": images_key(x, y),
        "options": repr((options.threat, options.radius, options.precision, options.seed, options.chunk)),
    }
    parts = []
    with Ledger(work, about) as ledger:
        for number, (some, labels) in enumerate(zip(x.split(options.chunk), y.split(options.chunk), strict=True)):
            kept: _Part | None = ledger.load(f"part-{number}", _Part)
            if kept is None:
                kept = _judged(opened, some, labels, options)
                ledger.save(f"part-{number}", kept)
            parts.append(kept)
    letters = "".join(part.letters for part in parts)
    subject = opened.subject
    return {
        "model": subject.name,
        "objective": subject.objective,
        "recipe": subject.recipe,
        "epochs": subject.epochs,
        "hours": subject.hours,
        "trained on": subject.machine,
        "options": options.facts(),
        "n": len(letters),
        "clean": 1 - letters.count(WRONG) / len(letters),
        "robust": letters.count(ROBUST) / len(letters),
        "propagations": sum(part.propagations for part in parts) / len(letters),
        "seconds": sum(part.seconds for part in parts),
        "machine": machine(),
        "images": rows,
        "verdicts": letters,
    }


def show(options: VerdictOptions, console: Console) -> None:
    """A line for each network, and a file in `out`; one that is there already is not made again."""
    torch.set_num_threads(options.threads)
    title = f"{options.threat} {options.eps}, {options.split} images, standard attacks"
    table = plain_table(title, ("network", "n", "clean", "robust", "propagations", "seconds"), 1)
    for run in options.runs:
        out = options.out / f"{run.resolve().name}.json"
        if out.exists():
            console.print(f"{out} is there already.")
            continue
        opened = open_model(str(run), data_dir=options.data_dir)
        if (opened.subject.recipe or {}).get("channels_last"):  # a fifth less time on a CPU, and the same verdicts
            opened.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        found = verdict(opened, options, None if options.work is None else options.work / run.resolve().name)
        write_json(out, found)
        figures = f"{found['clean']:.2%}", f"{found['robust']:.2%}", f"{found['propagations']:.0f}"
        table.add_row(found["model"], str(found["n"]), *figures, f"{found['seconds']:.0f}")
    console.print(table)


def _judged(opened: OpenedModel, x: Tensor, y: Tensor, options: VerdictOptions) -> _Part:
    begun = process_time()
    found = attack(opened.model, x, y, options.search, progress=False)
    wrong, robust = found.distance == 0, ~(found.distance <= options.radius)
    letters = "".join(WRONG if w else ROBUST if r else BROKEN for w, r in zip(wrong, robust, strict=True))
    return _Part(letters, float(found.propagations.sum()), process_time() - begun)


def _images(opened: OpenedModel, options: VerdictOptions) -> tuple[Tensor, Tensor, str]:
    """The images of the split, and which they are, in words."""
    part, rows = opened.data.test, "the first of the test set"
    if options.split == "held-out":
        recipe = opened.subject.recipe or {}
        held_out, seed = recipe["held_out"], recipe.get("seed", 0)
        part, rows = opened.data.train.split(held_out, seed)[1], f"held out of training: {held_out}, seed {seed}"
    if not isinstance(part, Images):
        raise ConfigError(f"The data of {opened.subject.name} must be images in memory, such as cifar10.")
    most = slice(options.images)
    return part.floats(most), part.labels[most], rows
