"""Code that a file names is imported only if the caller trusts it.

A run directory or a recipe may come from anybody, and a name such as `package.module:function` in it would run that
code. It is refused unless the caller trusts everything in the file (`trust=True`, `--trust`) or the package that is
named (`trust="my_package"`, `--trust my_package`). What a user types or passes in Python needs no trust.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gradreg.checks.scalars import shown
from gradreg.errors import ConfigError, TrustError
from gradreg.models.registry import LIBRARIES

Trust = bool | str | Sequence[str]
"""True: everything that a file names; False: nothing; or the packages whose code may be imported."""

EVERYTHING = "*"
# gradreg's own function, which loads a run as `gradreg.load` does: code that the run names is refused in its turn.
_FINE_TUNED = "gradreg.runs.finetuning:from_network"
_PACKAGE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_LIBRARY_MODEL = re.compile(r"[\w.]+")
_WORD = re.compile(r"[\w.-]{1,64}")
# Options of a library's model that may be words: which layers it has, and which of the library's own weights. Other
# words may be paths or addresses, which the library would read or download, unpickling what it finds.
_WORDS = ("activation", "act_layer", "norm_layer", "global_pool", "weights")


def check_trusted(model: Mapping[str, Any], source: object, trust: Trust, settings: Sequence[str] = ()) -> None:
    """Refuse a model, as a file describes it, whose code or options are not trusted; `settings` the user typed."""
    packages, typed = trusted_packages(trust), {setting.partition("=")[0].strip() for setting in settings}
    name = model.get("name")
    if packages is None or "model" in typed or not isinstance(name, str) or ":" not in name or name == _FINE_TUNED:
        return
    library, _, rest = name.partition(":")
    if library not in LIBRARIES:
        if "model.name" not in typed and not any(_covers(package, library) for package in packages):
            raise TrustError(
                f"{source} names code to import, {shown(name)}, which is run only if you trust it: pass --trust "
                f"{library[:80]} (in Python trust={library[:80]!r}), or --trust (trust=True) for whatever it names."
            )
        return
    if library in packages:
        return
    untyped = {key: value for key, value in model.items() if key != "name" and f"model.{key}" not in typed}
    refused = [key for key, value in untyped.items() if not _harmless(key, value)]
    if "model.name" not in typed and not _LIBRARY_MODEL.fullmatch(rest):
        refused.insert(0, "name")
    if refused:
        raise TrustError(
            f"{source} may make {library} load something from elsewhere ({refused[0]} = {shown(model[refused[0]])}), "
            f"which is done only if you trust it: pass --trust {library} (in Python trust={library!r})."
        )


def are_packages(text: str) -> bool:
    """Whether a text names packages, with commas between them."""
    return all(map(_PACKAGE.fullmatch, text.split(",")))


def trusted_packages(trust: Trust) -> tuple[str, ...] | None:
    """The trusted packages; None if everything is trusted."""
    if isinstance(trust, bool):
        return None if trust else ()
    if isinstance(trust, str) and trust == EVERYTHING:
        return None
    given: Any = trust.split(",") if isinstance(trust, str) else trust
    names = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    for name in names:
        if not isinstance(name, str) or not _PACKAGE.fullmatch(name):
            raise ConfigError(
                f"trust must be True, False or names of packages such as 'my_package'; got {shown(name)}."
            )
    return names


def _covers(package: str, module: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _harmless(key: str, value: Any) -> bool:
    """Numbers and switches, and the words among a library's own."""
    if isinstance(value, list | tuple):
        return all(isinstance(entry, int | float) for entry in value)
    if isinstance(value, str):
        return key in _WORDS and _WORD.fullmatch(value) is not None
    return isinstance(value, int | float)
