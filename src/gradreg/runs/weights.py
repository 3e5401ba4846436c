"""Weights from a file into a network: every one of them, of the right shape and type, and finite."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradreg.checks.tensors import check_width
from gradreg.errors import ModelError


def check_fit(network: nn.Module, tensors: Mapping[str, Tensor], source: object, remedy: str) -> None:
    """Refuse weights that are not exactly those of the network, by name, shape and kind of number; also on "meta"."""
    expected = {name: value for name, value in network.state_dict().items() if isinstance(value, Tensor)}
    # Of tied weights, which state_dict names twice, a file of safetensors may hold one.
    optional = _tied(network)
    for names, what in (
        ([name for name in expected if name not in tensors and name not in optional], "lacks"),
        ([name for name in tensors if name not in expected], "also holds"),
    ):
        if names:
            raise ModelError(f"{source} does not fit: it {what} {names[0]!r} ({len(names)} in total); {remedy}.")
    for name, found in tensors.items():
        check_width(f"{name!r} of {source}", found, ModelError)
        wanted = expected[name]
        if is_lazy(wanted):  # a lazy layer takes the shape that it is given
            continue
        if found.shape != wanted.shape or _kind(found) != _kind(wanted):
            raise ModelError(
                f"{source} does not fit: {name!r} must be {_described(wanted)}; got {_described(found)}; {remedy}."
            )


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor], source: object, remedy: str) -> None:
    """Load weights that fit; those that are NaN or infinite where a fresh network's are not are refused."""
    check_fit(network, tensors, source, remedy)
    fresh = network.state_dict()
    if any(isinstance(value, Tensor) and value.is_meta for value in fresh.values()):
        raise ModelError(
            f"{source} cannot be loaded into a network on the meta device, which holds no values: build it elsewhere, "
            "without torch.device('meta')."
        )
    for name, found in tensors.items():
        if found.is_floating_point():
            lazy = is_lazy(fresh[name])
            bad = ~found.isfinite() if lazy else ~found.isfinite() & fresh[name].isfinite().to(found.device)
            if bool(bad.any()):
                value = float(found[bad].flatten()[0])
                raise ModelError(
                    f"{source} cannot be used: {int(bad.sum())} of {found.numel()} values of {name!r} are not finite, "
                    f"the first is {value}; {remedy}."
                )
    network.load_state_dict(dict(tensors), strict=False)


def _tied(network: nn.Module) -> set[str]:
    """Names of all but the first of parameters that share their memory."""
    first: dict[int, str] = {}
    tied: set[str] = set()
    for name, value in network.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and first.setdefault(id(value), name) != name:
            tied.add(name)
    return tied


def _kind(tensor: Tensor) -> str:
    """Float weights of any precision may be loaded into each other; nothing else may."""
    return "float" if tensor.is_floating_point() else str(tensor.dtype)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
