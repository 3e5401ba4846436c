"""How commands are read from the command line: options dataclasses as they are, and how a model and its data are named.

An option that takes several values in Python (names, numbers, radii by threat) is one text with commas here; the
options dataclass reads both. Numbers may be fractions, such as 8/255.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import tyro
from rich.console import Console
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Side, check_numbers, shown
from gradreg.config.fractions import fraction
from gradreg.data.source import choices
from gradreg.errors import ConfigError

T = TypeVar("T")

DATA = choices()
_DATA_DIR = "Where data sets are stored; default: $GRADREG_DATA, or the user's cache folder."
_MODEL = (
    "A run directory, a name that `gradreg networks` lists, a .safetensors, .pt, .pth or .ckpt file (with "
    "--architecture), timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER or package.module:function."
)

_TRUST = (
    "Import code that the run or recipe names: all of it, or that of one package, as in --trust my_package. Only for "
    "files of people that you trust."
)

DataDir = Annotated[Path | None, tyro.conf.arg(help=_DATA_DIR)]
ModelName = Annotated[str, tyro.conf.arg(help=_MODEL, metavar="MODEL")]
TrustOption = Annotated[str | None, tyro.conf.arg(help=_TRUST, metavar="[PACKAGE]")]
Inline = tyro.conf.arg(name="")
"""Marks a group of options whose names carry no prefix."""

REGISTRY = ConstructorRegistry()
"""How texts become values."""
_PLAIN = (str, int, float, bool, Path, NoneType)


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """How a model and its images are named on the command line."""

    data: Annotated[str | None, tyro.conf.arg(help=f"{DATA}; default: the run's own.")] = None
    architecture: str | None = None
    """The network that a weights file is for: any name that `gradreg.build` knows."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An option of that network, as in --set activation=gelu."""
    key: str | None = None
    """Which weights of the file, if it holds several sets, as in --key ema."""
    size: Side | None = None
    """The side of the squares that the network gets; default for a folder: the run's own, an hf: model's, or 224."""
    mean: str | None = None
    """What is subtracted from pixels in [0, 1] before the network, for all channels or for each: 0.485,0.456,0.406."""
    std: str | None = None
    """What they are divided by after that."""
    device: str = "auto"
    """Where to compute: cpu, cuda, cuda:1, mps; auto takes an accelerator if there is one."""
    data_dir: DataDir = None
    trust: TrustOption = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("mean", "std"):
            self._statistics(name)

    @contextmanager
    def opened(self, model: str) -> Iterator[Any]:
        """The model and its data set on the device, as an `Opened`, and the device."""
        from gradreg.runs.opening import open_model_on

        named = {name: getattr(self, name) for name in ("architecture", "key", "size", "data_dir")}
        named |= {name: self._statistics(name) for name in ("mean", "std")}
        with open_model_on(self.device, model, self.data, self.set, trust=self.trust or False, **named) as (
            opened,
            device,
        ):
            yield replace(opened, subject=replace(opened.subject, arguments=self.written)), device

    def _statistics(self, name: str) -> tuple[float, ...] | None:
        text = getattr(self, name)
        if text is None:
            return None
        found = [fraction(part) for part in text.split(",")]
        if None in found:
            raise ConfigError(f"--{name} must be comma-separated numbers such as 0.485,0.456,0.406; got {shown(text)}.")
        return check_numbers(f"--{name}", found, above=0 if name == "std" else None)

    @property
    def written(self) -> tuple[str, ...]:
        """The arguments that mean the same on another machine, as they were typed."""
        given: dict[str, Sequence[Any]] = {
            "--data": [self.data],
            "--architecture": [self.architecture],
            "--set": self.set,
            "--key": [self.key],
            "--size": [self.size],
            "--mean": [self.mean],
            "--std": [self.std],
        }
        pairs = [(flag, str(value)) for flag, values in given.items() for value in values if value is not None]
        return tuple(word for pair in pairs for word in pair)


def say(console: Console, sentence: str) -> None:
    """A line as it is, whatever signs a path in it has."""
    console.print(sentence, highlight=False, soft_wrap=True, markup=False)


@REGISTRY.primitive_rule
def _text(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A text where the option takes a text or something that only Python can write."""
    if info.type_origin not in (Union, UnionType):
        return None
    parts = get_args(info.type)
    takes_text = any(part is str or get_origin(part) is Literal for part in parts)
    if not takes_text or all(part in _PLAIN or get_origin(part) is Literal for part in parts):
        return None
    may_be_none = NoneType in parts
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="TEXT",
        instance_from_str=lambda arguments: None if may_be_none and arguments[0] == "none" else arguments[0],
        is_instance=lambda value: True,
        str_from_instance=lambda value: [_written(value)],
    )


@REGISTRY.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A value or none, which help texts show as the value alone."""
    parts = get_args(info.type) if info.type_origin in (Union, UnionType) else ()
    kinds = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts if part is not NoneType]
    if len(kinds) != 1 or kinds[0] not in _READERS:
        return None
    (kind,) = kinds
    read = _READERS[kind]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda arguments: None if arguments[0] in ("none", "None") else read(arguments[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [_written(value) if value is None else str(value)],
    )


@REGISTRY.primitive_rule
def _number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    """A number, or a fraction such as 8/255."""
    if info.type is not float:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT",
        instance_from_str=lambda arguments: _fraction(arguments[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [f"{value:g}"],
    )


@REGISTRY.primitive_rule
def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """A whole number; tyro's own reader would tell of Python's `int()`."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda arguments: _integer(arguments[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


@REGISTRY.primitive_rule
def _path(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    """A path; pathlib would take an empty text for the working directory."""
    if info.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda arguments: _place(arguments[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    )


def _place(text: str) -> Path:
    """A path. A shell leaves the ~ of --out=~/x, which would become a folder of that name."""
    if not text:
        raise ValueError("expected a path; got ''")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"expected a path; got {shown(text)}, and there is no such home") from None


def _fraction(text: str) -> float:
    found = fraction(text)
    if found is None:
        raise ValueError(f"expected a number such as 0.5 or 8/255; got {shown(text)}")
    return found


def _integer(text: str) -> int:
    # Python's int() would read the digits of every script.
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f"expected a whole number; got {shown(text)}")
    return int(text)


def _written(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "none"
    return ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)


_READERS: dict[Any, Callable[[str], Any]] = {str: str, int: _integer, float: _fraction, Path: _place}
