"""Image classifiers of Hugging Face, by their name on the hub or from a folder, behind their own preprocessing.

No code of a folder or of the hub is run, and a folder is read without the network.
"""

import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradreg.errors import DataError, ModelError
from gradreg.models.external import as_one_sentence, library
from gradreg.models.normalize import Normalize, Statistics
from gradreg.models.preprocessing import SHAPING, Preprocessing
from gradreg.models.swaps import swap_activations
from gradreg.reading import read_json

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIGS = ("preprocessor_config.json", "processor_config.json")


class Logits(nn.Module):
    """A classifier of Hugging Face as a function from pixels to logits."""

    def __init__(self, model: nn.Module, trained_classes: int | None) -> None:
        super().__init__()
        self.model = model
        self.trained_classes = trained_classes
        """How many classes its last layer was trained for; None if nothing was."""

    def forward(self, pixels: Tensor) -> Tensor:
        """The logits of normalised images."""
        found: Tensor = self.model(pixel_values=pixels).logits
        return found


def hf_model(
    name: str,
    *,
    classes: int,
    pretrained: bool = False,
    activation: str | None = None,
    mean: Statistics | None = None,
    std: Statistics | None = None,
    **options: Any,
) -> nn.Module:
    """`AutoModelForImageClassification` of that name or folder, behind the preprocessing that is saved with it.

    `pretrained=True` takes its weights, with a fresh last layer if the number of classes differs. `mean` and `std` take
    the place of its own normalisation. Other options are transformers' own.
    """
    transformers = library("transformers", "hf")
    place, offline = _place(name)
    common = {"trust_remote_code": False, "local_files_only": offline}
    with as_one_sentence("transformers", name):
        config = transformers.AutoConfig.from_pretrained(place, **common)
        trained = int(config.num_labels)
        config.num_labels = classes
        auto = transformers.AutoModelForImageClassification
        if pretrained:
            model = auto.from_pretrained(
                place, config=config, ignore_mismatched_sizes=trained != classes, **common, **options
            )
        else:
            model = auto.from_config(config, trust_remote_code=False, **options)
    before = _layers(place, offline, mean, std)
    if activation is not None:
        swap_activations(model, activation)
    logits = Logits(model.train(), trained if pretrained else None)
    return nn.Sequential(OrderedDict[str, nn.Module](**before, model=logits))


def _place(name: str) -> tuple[str, bool]:
    """The folder or the name on the hub, and whether it is a folder."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path), True
    if name.startswith(("/", ".", "~")) or (os.sep != "/" and os.sep in name):
        raise ModelError(f"There is no folder {path}: pass one that save_pretrained wrote, or a name on the hub.")
    if not _HUB_NAME.fullmatch(name):
        raise ModelError(f"A model of Hugging Face must be a folder or a name such as google/vit-base; got {name!r}.")
    return name, False


def _layers(place: str, offline: bool, mean: Statistics | None, std: Statistics | None) -> dict[str, nn.Module]:
    if (mean is None) != (std is None):
        raise ModelError("Pass both mean and std, or neither for the model's own.")
    found = _config(place, offline)
    if found is None and (mean is None or std is None):
        raise ModelError(
            f"{place} has no {_CONFIGS[0]}, so its normalisation is not known: pass mean= and std= (--mean 0.5 "
            "--std 0.5)."
        )
    if mean is None or std is None:
        return Preprocessing.of(found[1], found[0]).layers() if found else {}
    # Of its own preparation the size is left, and the order of channels.
    kept = {key: value for key, value in found[1].items() if key in SHAPING} if found else {"do_resize": False}
    return {**Preprocessing.of(kept, str(place)).layers(), "normalize": Normalize(mean, std)}


def _config(place: str, offline: bool) -> tuple[str, dict[str, Any]] | None:
    """The file that says how images are prepared, and its content."""
    for name in _CONFIGS:
        path = Path(place) / name if offline else _from_hub(place, name)
        if path is None or not path.is_file():
            continue
        try:
            content = read_json(path)
        except DataError as error:
            raise ModelError(str(error)) from error
        inner = content.get("image_processor", content)
        if isinstance(inner, dict):
            return str(path), inner
    return None


def _from_hub(name: str, file: str) -> Path | None:
    """A file of the hub, or of its cache; None if the model has none of that name."""
    utilities = library("transformers.utils", "hf")
    with as_one_sentence("transformers", name):
        found = utilities.cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)
