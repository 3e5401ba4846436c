"""Folders that `gradreg.publish` wrote: weights of a network made in Python, and what goes before and after it."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from gradreg.classifier import Classifier
from gradreg.codec import join
from gradreg.errors import ConfigError
from gradreg.reading import one_sentence, read_json

WEIGHTS, CONFIG = "model.safetensors", "config.json"
# Other libraries have files of these names too; only ours say who wrote them.
_MARK = "gradreg"


@dataclass(frozen=True)
class Input:
    """What the network is given and how its answers are read, as far as a file can hold it."""

    shape: tuple[int, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    output: bool = False
    """Whether its answers are read by a function, which no file holds."""
    box: tuple[float, float] = (0.0, 1.0)
    """The least and the largest pixel; evaluations are about [0, 1]."""

    @classmethod
    def of(cls, classifier: Classifier, shape: tuple[int, ...]) -> "Input":
        """That of a classifier of images of that shape."""
        statistics = classifier._mean, classifier._std
        mean, std = (None if each is None else tuple(each.flatten().tolist()) for each in statistics)
        return cls(shape, mean, std, classifier.output is not None, classifier.box)


@dataclass(frozen=True)
class Published:
    """A published network: where its weights are, and what they belong to."""

    weights: Path
    architecture: str
    input: Input

    @classmethod
    def at(cls, path: Path) -> "Published | None":
        """What a folder, or the weights file in it, holds; None where nothing was published."""
        folder = path.parent if path.name == WEIGHTS else path
        if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
            return None
        content = read_json(folder / CONFIG)
        if _MARK not in content:
            return None
        with one_sentence(folder / CONFIG, "publish the network again"):
            given: Input = join(Input, content.get("input"), {}, "input")
            return cls(folder / WEIGHTS, join(str, content.get("architecture"), {}, "architecture"), given)

    def restored(self, network: nn.Module) -> nn.Module:
        """The network, which has the weights, behind the normalisation that it was published with."""
        given = self.input
        if isinstance(network, Classifier):
            return network
        if given.output:
            raise ConfigError(
                f"{self.weights} was published with a function that reads the answers of {self.architecture}: pass "
                "architecture=gradreg.Classifier(network, output=…), with the mean and std of config.json."
            )
        if given.mean is None:
            return network
        return Classifier(network, mean=given.mean, std=given.std, box=given.box).train(network.training)
