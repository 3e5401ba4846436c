"""A network that was made in Python, as a folder for a model hub: weights, card with front matter, robustness curve."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import nn

from gradreg import evaluation as evaluations
from gradreg import storage
from gradreg._version import __version__
from gradreg.calling.contents import asks_functions
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_path
from gradreg.classifier import Classifier
from gradreg.config.fractions import radius_name
from gradreg.display.curves import steps
from gradreg.display.numbers import percent
from gradreg.errors import ConfigError
from gradreg.evaluation import Evaluation
from gradreg.report.cards import card
from gradreg.report.cards.figures import Remarks, figures
from gradreg.report.cards.shipping import evaluated_weights
from gradreg.runs.onnx import export_onnx
from gradreg.runs.published import CONFIG, WEIGHTS, Input
from gradreg.writing import replacing

README, CURVE, RECORDS, PICTURE, ONNX = OURS = (
    "README.md",
    "robustness.json",
    "records.json",
    "robustness.png",
    "model.onnx",
)
FILES = (*OURS, WEIGHTS, CONFIG)
_SHARES = (0.25, 0.5, 1.0, 1.5, 2.0)


@validated
def publish(
    model: nn.Module,
    evaluation: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    license: str = "",
    onnx: bool = False,
    remarks: Remarks | None = None,
    replace: bool = False,
) -> Path:
    """Write a network made in Python as a folder: for `gradreg.load(folder, architecture=…)`, and for a model hub.

    It can be uploaded to the Hugging Face Hub as it is. Returns its path.

    `evaluation` is the folder that `evaluate(model, data, folder=…)` wrote about these very weights; every figure of
    the card is from it. `license` goes into the front matter, as in "mit". `onnx` adds the network as a file that runs
    without its code.
    """
    place, target = check_path("evaluation", evaluation), check_path("folder", folder)
    record = evaluations.load(place)
    _check_weights(model, record, place)
    foreign = sorted(path.name for path in target.iterdir() if path.name not in FILES) if target.is_dir() else []
    if foreign or (target.exists() and not replace):
        raise ConfigError(f"{target} exists{' and holds ' + foreign[0] if foreign else ''}: name a new folder.")
    texts = {  # the card is renamed last
        README: readme(record, license, remarks or Remarks(), onnx=onnx),
        CURVE: _json(curve(record)),
        RECORDS: _json(record.to_dict()),
        CONFIG: _json(_config(model, record)),
    }
    target.mkdir(parents=True, exist_ok=True)
    if onnx:
        export_onnx(model, target / ONNX, record.data.shape)
    with ExitStack() as renamed:
        aside = {name: renamed.enter_context(replacing(target / name)) for name in (*texts, WEIGHTS, PICTURE)}
        for name, text in texts.items():
            aside[name].write_text(text, encoding="utf-8")
        save_model(_inner(model), str(aside[WEIGHTS]))
        # safetensors makes files that only their owner can read.
        aside[WEIGHTS].chmod(aside[README].stat().st_mode)
        record.plot().savefig(aside[PICTURE], format="png", dpi=150)
    return target


def curve(evaluation: Evaluation) -> dict[str, Any]:
    """Per threat, the robust accuracy at every distance where it falls."""
    found = {}
    for name, record in evaluation.threats.items():
        x, y = steps(record.distance)
        found[name] = {"distance": list(x), "robust_accuracy": list(y), "n": len(evaluation), "unit": "pixels"}
    return found


def readme(evaluation: Evaluation, license: str, remarks: Remarks, *, onnx: bool) -> str:
    """The card with its front matter."""
    sections = [
        _opening(evaluation, onnx),
        card.limits(evaluation, remarks, use=""),
        card.results(evaluation),
        _curve_section(evaluation),
        card.diagnosis(evaluation),
    ]
    return front_matter(evaluation, license) + "\n\n".join(sections) + "\n"


def front_matter(evaluation: Evaluation, license: str) -> str:
    """What the hub reads: YAML, each value written as JSON, which is YAML too."""
    metrics = [
        {"type": "accuracy", "name": figure.what, "value": round(100 * figure.right.value, 2)}
        for figure in figures(evaluation)
    ]
    data = {"name": evaluation.data.name, "type": evaluation.data.name}
    result = {"task": {"type": "image-classification"}, "dataset": data, "metrics": metrics}
    values: dict[str, Any] = {
        **({"license": license} if license else {}),
        "library_name": "gradreg",
        "pipeline_tag": "image-classification",
        "tags": ["adversarial-robustness", "gradreg", "pytorch"],
        "model-index": [{"name": evaluation.subject.name, "results": [result]}],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(["---", *lines, "---", "", ""])


def _opening(evaluation: Evaluation, onnx: bool) -> str:
    subject, data = evaluation.subject, evaluation.data
    images = f"{data.name} ({len(data.classes)} classes, {'×'.join(map(str, data.shape))} pixels)"
    also = f"\n\n`{ONNX}` runs without its code: pixels in, logits out, any batch size." if onnx else ""
    return f"""# {subject.name}

A network `{subject.architecture}` of {subject.parameters:,} parameters for {images}.

```python
import gradreg

model = gradreg.load("path/to/this/folder", architecture=network)  # a {subject.architecture} made by its own code
```{also}

The classes, in the order of the logits: {", ".join(data.classes)}."""


def _curve_section(evaluation: Evaluation) -> str:
    lines = ["## Robustness curve", "", f"![Robust accuracy against distance]({PICTURE})", ""]
    for record in evaluation.threats.values():
        usual = evaluation.data.usual_radius(record.threat)
        radii = [share * usual for share in _SHARES]
        lines += [
            f"| {record.symbol} | " + " | ".join(radius_name(radius) for radius in radii) + " |",
            "|---|" + "---:|" * len(radii),
            "| robust | " + " | ".join(percent(record.robust_accuracy(radius).value) for radius in radii) + " |",
            "",
        ]
    lines.append(f"n = {len(evaluation):,}. Every step of the curves is in `{CURVE}`, every image in `{RECORDS}`.")
    return "\n".join(lines)


def _config(model: nn.Module, evaluation: Evaluation) -> dict[str, Any]:
    subject, data = evaluation.subject, evaluation.data
    return {
        "architecture": subject.architecture,
        "parameters": subject.parameters,
        "id2label": {str(i): name for i, name in enumerate(data.classes)},
        "input": asdict(Input.of(Classifier.of(model), data.shape)),
        "gradreg": __version__,
        "torch": torch.__version__,
    }


def _check_weights(model: nn.Module, record: Evaluation, place: Path) -> None:
    if asks_functions(_inner(model)):
        raise ConfigError(
            f"model must be a network whose weights can be saved; got {type(model).__name__}, which asks a function: "
            "pass the nn.Module inside."
        )
    known = evaluated_weights(place.parent if place.is_file() else place, record)
    if known is None:
        raise ConfigError(
            f"{place} does not say which weights it is about (its .state was deleted): evaluate again with folder=."
        )
    if known != Classifier.of(model).fingerprint(torch.empty(0)):
        raise ConfigError(f"{place} is not an evaluation of these weights: evaluate this model with folder=.")


def _inner(model: nn.Module) -> nn.Module:
    return model.model if isinstance(model, Classifier) and isinstance(model.model, nn.Module) else model


def _json(content: Mapping[str, Any]) -> str:
    return storage.json_bytes(dict(content)).decode()
