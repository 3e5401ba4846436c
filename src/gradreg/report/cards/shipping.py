"""From a run and its evaluation to a network that can be shipped: checked, with a card, without local paths."""

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch import nn

from gradreg import evaluation as evaluations
from gradreg.calling.contents import asks_functions
from gradreg.classifier import Classifier
from gradreg.config import toml
from gradreg.errors import ConfigError, DataError
from gradreg.evaluation import Evaluation
from gradreg.evaluation.files import STATE
from gradreg.ledger import begun_about
from gradreg.locks import LOCK, lock
from gradreg.losses import probability_margin
from gradreg.models.registry import LIBRARIES, MODELS
from gradreg.report.cards import card, curve
from gradreg.report.cards.figures import Remarks, entries
from gradreg.runs.checkpoints import State
from gradreg.runs.directory import MACHINE, RunDirectory
from gradreg.runs.loading import load
from gradreg.runs.networks import CARD, CONFIG, CURVE, ENTRIES, FILES, METRICS, home, resolve
from gradreg.runs.opening import open_model, with_training
from gradreg.runs.subject import Subject, parameters
from gradreg.runs.trust import Trust
from gradreg.writing import is_temporary, replacing

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FOLDER = "folder:"
# By how much softmax probabilities may differ between devices; those of another epoch differ by more.
_ROUNDING = 1e-3
_BATCH = 250


@dataclass(frozen=True)
class _Trained:
    """A run as it was found."""

    run: RunDirectory
    recipe: Mapping[str, Any]
    best: State
    network: nn.Module
    trust: Trust


def ship(
    run: Path,
    name: str,
    evaluation: Path,
    *,
    to: Path | None = None,
    replace: bool = False,
    remarks: Remarks | None = None,
    data_dir: Path | None = None,
    trust: Trust = False,
) -> Path:
    """Write the folder `to`/`name` from the best weights of a run and an evaluation of them; its path.

    Without `to` it goes into the package, from where `gradreg.load(name)` takes it. Nothing is written unless the
    evaluation is of exactly these weights.
    """
    target = _target(name, to, replace)
    found = _open(run, trust)
    record = evaluations.load(evaluation)
    _check_recipe(found, record, evaluation)
    _check_weights(found, record, evaluation, data_dir)
    recipe, remarks = _portable(found.recipe), remarks or Remarks()
    subject = Subject(name, _source(name, to), str(recipe["model"]["name"]), parameters(found.network))
    data = changed(record.data, name=_portable(record.data.name))
    shown = changed(record, data=data, subject=with_training(subject, found.run, recipe))
    best = found.best.numbers["metrics"]
    texts = {
        METRICS: "".join(json.dumps(row, allow_nan=False) + "\n" for row in found.run.metrics()),
        CARD: card.write(shown, best, remarks),
        CURVE: curve.draw(shown),
        ENTRIES: json.dumps(entries(shown, remarks), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        CONFIG: toml.dumps(recipe),
    }
    _write(target, found.best, recipe, texts)
    return target


def _source(name: str, to: Path | None) -> str:
    """What loads it: its name if it goes into the package, else its path, without folders of this machine."""
    if to is None:
        return name
    return f"path/to/{name}" if to.is_absolute() else (to / name).as_posix()


def _portable(value: Any) -> Any:
    """A recipe without absolute paths: of a folder of images only its own name is kept."""
    if isinstance(value, Mapping):
        return {key: _portable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(entry) for entry in value]
    if not isinstance(value, str):
        return value
    prefix = _FOLDER if value.startswith(_FOLDER) else ""
    place = value.removeprefix(prefix)
    for kind in (PurePosixPath, PureWindowsPath):
        if kind(place).is_absolute() or place.startswith("~"):
            return prefix + kind(place).name
    return value


def _target(name: str, to: Path | None, replace: bool) -> Path:
    if not _NAME.fullmatch(name) or name in MODELS:
        raise ConfigError(
            "The name of a shipped network must be lower-case letters, digits, dots and dashes, and none that `gradreg "
            f"models` lists; got {name!r}."
        )
    if to is None and not (home().parents[3] / "pyproject.toml").is_file():
        raise ConfigError(
            "gradreg is not installed from a checkout that a network could be added to: pass --to FOLDER."
        )
    target = (to or home()) / name
    if target.exists() and not replace:
        raise ConfigError(f"{target} exists: choose another --name, or add --replace.")
    foreign = (
        sorted(
            path.name for path in target.iterdir() if path.name not in (*FILES, CURVE, LOCK) and not is_temporary(path)
        )
        if target.is_dir()
        else []
    )
    if foreign or target.is_file():
        raise ConfigError(
            f"{target} is not a shipped network (it holds {', '.join(foreign) or 'a file'}): choose another --to."
        )
    return target


def _open(run: Path, trust: Trust) -> _Trained:
    directory = RunDirectory(resolve(run))
    recipe = directory.config() if (directory.folder / CONFIG).is_file() else {}
    model = recipe.get("model")
    name = str(model.get("name")) if isinstance(model, Mapping) else ""
    if ":" in name and name.partition(":")[0] not in LIBRARIES:
        raise ConfigError(f"The network of {run} is {name}, your own code, which is not shipped with its weights.")
    if recipe and model is None:
        raise ConfigError(
            f"The network of {run} was made in Python, so no recipe builds it: gradreg.publish(model, evaluation, "
            "folder) ships it."
        )
    network = load(run, trust=trust)
    return _Trained(directory, recipe, directory.weights("best"), network, trust)


def _check_recipe(found: _Trained, record: Evaluation, place: Path) -> None:
    data = found.run.settings().data
    if _portable(record.data.name) != _portable(data):
        raise ConfigError(
            f"{place} must be an evaluation on {data}, which the network was trained on; got {record.data.name}."
        )
    if record.subject.recipe is None:  # it was given the weights alone, which are compared in any case
        return
    ours, theirs = _portable(found.recipe), _portable(record.subject.recipe)
    for key in sorted(ours.keys() | theirs.keys()):
        if key not in MACHINE and ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{place} is an evaluation of another run than {found.run.folder} ({key} is {theirs.get(key)!r} there "
                f"and {ours.get(key)!r} here): evaluate this one."
            )


def _check_weights(found: _Trained, record: Evaluation, place: Path, data_dir: Path | None) -> None:
    """By the fingerprint that the evaluation was begun with; where that was deleted, by the answers to its images."""
    key = evaluated_weights(place.parent if place.is_file() else place, record)
    if key is not None and not asks_functions(found.network):
        same = key == Classifier.of(found.network).fingerprint(torch.empty(0))
    else:
        same = _same_answers(found, record, data_dir)
    if not same:
        raise ConfigError(
            f"{place} is not an evaluation of the best weights of {found.run.folder}: make one with `gradreg evaluate`."
        )


def evaluated_weights(folder: Path, record: Evaluation) -> str | None:
    """Of the weights that were evaluated, if the folder still has it and it was begun as this very evaluation."""
    begun = begun_about(folder / STATE)
    # Answers to the images that were evaluated may stand behind it.
    return str(begun["about"]["weights"]).split()[0] if begun.get("origin") == vars(record.origin) else None


def _same_answers(found: _Trained, record: Evaluation, data_dir: Path | None) -> bool:
    test = open_model(str(found.run.folder), data_dir=data_dir, trust=found.trust).data.test
    if len(test) != record.data.images or not torch.equal(test.labels[record.index], record.label):
        raise DataError(
            f"The test images of {record.data.name} are not those of the evaluation: pass their --data-dir."
        )
    with torch.no_grad():
        logits = torch.cat([found.network(test.floats(rows)) for rows in record.index.split(_BATCH)])
    margin = probability_margin(logits, record.label, record.settings.topk)
    return bool(((margin - record.margin).abs() <= _ROUNDING).all())


def _write(target: Path, best: State, recipe: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    """A network that was there stays whole until everything could be written; the recipe goes first and comes last."""
    weights = "best.safetensors"
    with lock(target), ExitStack() as renamed_last_to_first:
        names = sorted({*texts, weights}, key=lambda name: name != CONFIG)
        aside = {name: renamed_last_to_first.enter_context(replacing(target / name)) for name in names}
        RunDirectory(aside[weights].parent).save_weights("best", best.tensors, best.numbers["metrics"], recipe)
        for name, text in texts.items():
            aside[name].write_text(text, encoding="utf-8")
        (target / CONFIG).unlink(missing_ok=True)
