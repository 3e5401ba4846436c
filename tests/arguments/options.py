"""Every option of every command that takes a number, as the dataclasses of the commands have them."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from arguments.spoiled import kinds
from arguments.surface import Argument
from gradreg.cli import commands

# What a command cannot do without, so that nothing but the option is wrong.
NEEDED = {
    "inspect": ["0", "--model", "cifar10-l2"],
    "ship": ["run", "--name", "toy", "--evaluation", "run/evaluation"],
    "data": ["resize", "from", "to"],
    "train": ["mnist5k-l2"],
    "evaluate": ["cifar10-l2"],
    "diagnose": ["cifar10-l2"],
    "curvature": ["cifar10-l2"],
}
# Texts with numbers in them, separated by commas.
_LISTS = {"smoothing", "radii", "mean", "std", "autoattack"}


@dataclass(frozen=True)
class Option:
    """A number on the command line."""

    command: str
    argument: Argument

    @property
    def words(self) -> list[str]:
        """The command with all that it needs besides."""
        size = [] if self.command != "data" or self.argument.name == "size" else ["--size", "64"]
        other = {"mean": ["--std", "0.5"], "std": ["--mean", "0.5"]}.get(self.argument.name, [])
        return [self.command, *NEEDED.get(self.command, []), *size, *other]

    def with_value(self, value: str) -> list[str]:
        """The command line with this value."""
        return [*self.words, f"--{self.argument.name.replace('_', '-')}={value}"]


def options() -> list[Option]:
    """All of them."""
    return [Option(name, argument) for name, cls, _ in commands() for argument in _numbers(cls)]


def _numbers(cls: Any) -> Iterator[Argument]:
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        hint = hints[each.name]
        inner = [part for part in _classes(hint) if is_dataclass(part)]
        if inner:
            for part in inner:
                yield from _numbers(part)
        elif kinds(hint) & {int, float} or each.name in _LISTS:
            yield Argument(each.name, hint, None if each.default is MISSING else each.default)


def _classes(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Annotated:
        yield from _classes(get_args(hint)[0])
    elif get_args(hint):
        for part in get_args(hint):
            yield from _classes(part)
    else:
        yield hint
