"""The two networks of a measurement: those of two run directories, or the digits' ones, trained in a minute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.digits import EPS, fresh_model, trained
from bench.options import NETWORKS, TwoNetworks
from gradreg.data import DataSet, Images
from gradreg.fingerprints import model_key
from gradreg.ledger import Ledger
from gradreg.runs import load


@dataclass(frozen=True)
class _Weights:
    """A trained network as a ledger keeps it."""

    tensors: Mapping[str, Tensor]


def of_runs(options: TwoNetworks) -> dict[str, nn.Module]:
    """The networks of the run directories that are named; empty if there are none."""
    return {} if options.runs is None else dict(zip(NETWORKS, map(_opened, options.runs), strict=True))


def weights_of(models: Mapping[str, nn.Module]) -> dict[str, str]:
    """What a ledger is about as far as networks go: a run that was continued is another network."""
    return {f"weights of the {network} network": model_key(model) for network, model in models.items()}


def of_digits(network: str, data: DataSet, options: TwoNetworks, ledger: Ledger) -> nn.Module:
    """The digits' network of that name, trained here; it is kept, so that all figures are of the same weights."""
    images, eps = data.train, EPS if network == "regularised" else 0.0
    assert isinstance(images, Images)
    return _fastest(
        kept(
            ledger,
            f"{network}-network",
            lambda: fresh_model(options.seed),
            lambda: trained(images, eps, options.epochs, options.seed),
        )
    )


def kept(ledger: Ledger, name: str, fresh: Callable[[], nn.Module], train: Callable[[], nn.Module]) -> nn.Module:
    """The trained network of that name in eval mode: a fresh one with the weights that the ledger has, else trained."""
    weights: _Weights | None = ledger.load(name, _Weights)
    if weights is None:
        model = train()
        ledger.save(name, _Weights(model.state_dict()))
    else:
        model = fresh().eval()
        model.load_state_dict(weights.tensors)
    return model


def _opened(run: Path) -> nn.Module:
    return _fastest(load(run))


def _fastest(model: nn.Module) -> nn.Module:
    """Convolutions on a processor are a third faster in this layout; the function is the same."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
