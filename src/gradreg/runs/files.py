"""Weights files of any origin: which tensors of a file are a network's, under the names that the network gives them.

People save weights bare or inside of a table ("state_dict", "model", "ema", …), from a network that was wrapped
("module.", "_orig_mod.") or an attribute of something else ("model.", "net."). What is meant is found by the names that
the network itself has; where that leaves a choice, the caller is asked.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradreg.errors import DataError, ModelError
from gradreg.runs import pickled
from gradreg.runs.weights import load_weights
from gradreg.storage import read_tensors

SAFE = ".safetensors"
PICKLED = (".pt", ".pth", ".ckpt", ".bin", ".tar")
SUFFIXES = (SAFE, *PICKLED)

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
# Inside of names too: what is wrapped may be a part of the network.
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.")
_DEEPEST = 5
_PLACES = (
    "state_dict", "model", "ema", "model_state_dict", "module", "net", "network", "weights", "params", "model_state",
    "state_dict_ema", "ema_state_dict", "model_ema", "ema_model", "params_ema",
)  # fmt: skip


def is_weights(path: Path) -> bool:
    """Whether the name is that of a weights file."""
    return path.suffix.lower() in SUFFIXES


def read(path: Path, key: str | None = None) -> dict[str, Tensor]:
    """The weights in a file; `key` says which, where it holds several or names them otherwise."""
    try:
        content = read_tensors(path, "safetensors")[0] if path.suffix.lower() == SAFE else pickled.read(path)
        return _chosen(content, path, key)
    except DataError as error:
        raise ModelError(str(error)) from error


def load_into(network: nn.Module, tensors: Mapping[str, Tensor], source: object, remedy: str) -> None:
    """Load weights into the network, or into the model behind its normalisation, under whichever names they fit."""
    targets = [network]
    while (inner := _wrapped(targets[-1])) is not None:
        targets.append(inner)
    ways = [(target, _with_counts(named, target)) for named in _renamed(tensors) for target in targets]
    target, named = max(ways, key=lambda way: _agreement(*way))
    load_weights(target, named, source, remedy)


def _wrapped(network: nn.Module) -> nn.Module | None:
    """The model that is all of a network but for what is not trained; a head beside it would stay random."""
    inner = getattr(network, "model", None)
    if not isinstance(inner, nn.Module):
        return None
    inside = set(map(id, inner.parameters()))
    return inner if all(id(weight) in inside for weight in network.parameters()) else None


def _agreement(target: nn.Module, named: Mapping[str, Tensor]) -> int:
    """How many names are the same, less those that are not; the first of equals is chosen."""
    names = target.state_dict().keys()
    return len(names & named.keys()) - len(names ^ named.keys())


def _renamed(tensors: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor]]:
    """The weights as they are named, and with one prefix after another taken off the names that have it."""
    yield tensors
    named = _without_wrappers(tensors)
    yield named
    while prefix := next((each for each in _PREFIXES if any(name.startswith(each) for name in named)), None):
        shorter = {name.removeprefix(prefix): value for name, value in named.items()}
        if len(shorter) < len(named):  # two names would become one
            return
        named = shorter
        yield named


def _without_wrappers(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Without what wrappers add: a part of the names, and a count of averages."""
    named: dict[str, Tensor] = {}
    for name, value in tensors.items():
        for wrapper in _WRAPPERS:
            name = name.replace(wrapper, "")
        if name != "n_averaged":
            named[name] = value
    return named if len(named) >= len(tensors) - 1 else tensors


def _with_counts(tensors: Mapping[str, Tensor], target: nn.Module) -> Mapping[str, Tensor]:
    """With the batch counts of a fresh network where the file, of before torch kept them, has none at all."""
    counts = {name: value for name, value in target.state_dict().items() if name.endswith("num_batches_tracked")}
    return tensors if counts.keys() & tensors.keys() else {**counts, **tensors}


def _chosen(content: Any, path: Path, key: str | None) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise DataError(f"{path} must hold a table of weights, as model.state_dict() is; got a {kind}.")
    found = _at(content, key, path) if key else _only(content, path)
    if not found:
        raise DataError(f"{path} holds no weights{f' under {key!r}' if key else ''}; it has {_listed(content)}.")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise DataError(f"{path} must hold tensors by name; got a {type(value).__name__} under {str(name)[:80]!r}.")
    return dict(found)


def _only(content: Mapping[Any, Any], path: Path, above: str = "") -> Mapping[Any, Any]:
    """The one table of weights in a table, or the table itself."""
    places = [name for name in _PLACES if isinstance(content.get(name), Mapping)]
    if len(places) > 1:
        names = ", ".join(above + name for name in places)
        raise DataError(f"{path} holds several sets of weights ({names}): pass one as key (--key {above}{places[-1]}).")
    if places and above.count(".") >= _DEEPEST:  # a table may hold itself
        raise DataError(f"{path} must hold weights at most {_DEEPEST} tables deep; got {above}{places[0]}.")
    if places:
        return _only(content[places[0]], path, f"{above}{places[0]}.")
    if any(isinstance(value, Tensor) for value in content.values()):
        return content
    raise DataError(
        f"{path} must hold weights, bare or under one of {', '.join(_PLACES[:4])}, …; got {_listed(content)}: pass the "
        "name that they have as key (--key NAME)."
    )


def _at(content: Mapping[Any, Any], key: str, path: Path) -> Mapping[Any, Any]:
    """What lies under a key such as "ema" or "state_dict.student": tables first, then the beginning of names."""
    while True:
        inside = next((name for name in _beginnings(key) if isinstance(content.get(name), Mapping)), None)
        if inside is None:
            start = f"{key}."
            return {n.removeprefix(start): v for n, v in content.items() if isinstance(n, str) and n.startswith(start)}
        content, key = content[inside], key[len(inside) + 1 :]
        if not key:
            return _only(content, path, f"{inside}.")


def _beginnings(key: str) -> list[str]:
    """ "a.b.c", "a.b", "a"."""
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _listed(content: Mapping[Any, Any], most: int = 6) -> str:
    names = [str(name)[:40] for name in content]
    return ", ".join(names[:most]) + (", …" if len(names) > most else "") if names else "nothing"
