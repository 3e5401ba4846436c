"""What a forward moves besides its output: buffers, tensors and counters that a model keeps, and its random draws.

A repeated pass runs on copies of what the first one found, so that both are passes of the same function and only the
first leaves traces. The copies are put in the places of the originals and taken out again: nothing that autograd has
saved is written to.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.calling.contents import is_keeper, written_by_a_user
from gradreg.calling.known import Known, Place
from gradreg.calling.streams import Generator, RandomState, global_streams
from gradreg.calling.values import changed, copies, holds_fractions, is_container, is_plain, refill
from gradreg.calling.variables import Variables

_ABSENT: Any = object()
_WITHIN = "in "
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class Moment:
    """Everything that a model's answer depends on besides its input and weights, as it was at one moment."""

    state: "State"
    values: tuple[Any, ...]
    quiet: tuple[tuple[Any, int], ...]
    """Buffers that no pass has moved so far, with autograd's count of how often each was written to."""
    attributes: frozenset[Place]
    """The attributes there were, while it is not known which of them matter."""
    random: RandomState

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Run as from that moment on; afterwards all is as it was."""
        with self.random.replayed(), self.state.replaced(self):
            yield
            self.state.notice_draws(self.random)


class State:
    """The places of some modules where a forward can leave traces, as far as they are known to be used."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        generators: Sequence[Generator],
        known: Known,
        *,
        owners: Sequence[object] = (),
        evaluated: bool = False,
    ) -> None:
        """`owners`: the model itself and what is called with it, which may be objects or functions and no modules.

        `evaluated`: of attributes only what is not whole is put back, since whole numbers count queries.
        """
        self._owned = [_kept_by(owner) for owner in owners if isinstance(owner, FunctionType) or is_keeper(owner)]
        self._modules, self._known, self._learning = modules, known, known.moving is None
        self._is_state = holds_fractions if evaluated else is_plain
        self._keeps_new = evaluated
        self._generators = [*generators, *(global_streams() if known.draws is not False else ())]
        buffers = self._buffers()
        self._places = [*buffers, *self._attributes()] if known.moving is None else list(known.moving)
        moving = set(self._places)
        self._quiet = [place for place in buffers if place not in moving]

    @property
    def learning(self) -> bool:
        """Whether this step finds out what a pass changes, as a model's first one does."""
        return self._learning

    @property
    def moves(self) -> bool:
        """Whether a pass changes anything, or may, as far as is known."""
        return bool(self._known.moving if self._known.moving is not None else self._places)

    def now(self, device: torch.device) -> Moment:
        """This moment."""
        values = tuple(copies([self._at(place) for place in self._places]))
        quiet = tuple((tensor, _writes(tensor)) for tensor in map(self._at, self._quiet))
        return Moment(self, values, quiet, self._attributes(), RandomState.now(device, self._generators))

    @contextmanager
    def replaced(self, moment: Moment) -> Iterator[None]:
        """Put copies of what was there at that moment into their places, and take them out again."""
        made_since = ((place, _ABSENT) for place in self._attributes() - moment.attributes)
        pairs = [*zip(self._places, moment.values, strict=True), *self._late(moment), *made_since]
        originals = [self._at(place) for place, _ in pairs]
        held = [copy(original) if is_container(original) else None for original in originals]
        for (place, _), found, original in zip(pairs, copies([value for _, value in pairs]), originals, strict=True):
            self._put(place, original if refill(original, found) else found)
        before = self._attributes()
        try:
            yield
            if self._learning:
                self._notice(pairs, before)
        finally:
            for place in () if self._keeps_new else self._attributes() - before:
                self._put(place, _ABSENT)
            for (place, _), original, parts in zip(pairs, originals, held, strict=True):
                refill(original, parts)
                self._put(place, original)

    def _late(self, moment: Moment) -> list[tuple[Place, Any]]:
        """Buffers that were written to for the first time since that moment: protected as they are now."""
        late = [
            (place, self._at(place))
            for place, (tensor, writes) in zip(self._quiet, moment.quiet, strict=True)
            if self._at(place) is not tensor or _writes(tensor) != writes
        ]
        if late:
            self._known.moving = None
        return late

    def notice_draws(self, random: RandomState) -> None:
        """Remember whether the model draws from NumPy's or Python's stream."""
        if self._known.draws is None:
            drawn = random.drawn_from()
            self._known.draws = any(stream is generator for stream in global_streams() for generator in drawn)

    def _notice(self, pairs: Sequence[tuple[Place, Any]], before: frozenset[Place]) -> None:
        """Remember which places a pass that began with these values has changed."""
        found = changed([(value, self._at(place)) for place, value in pairs])
        moved = [place for (place, _), was in zip(pairs, found, strict=True) if was]
        made = () if self._keeps_new else self._attributes() - before
        # What counts its passes may change something else at the hundredth, such as a temperature.
        counting = {number for number, *_ in moved}
        later = sorted(place for place in before if place[0] in counting)
        self._known.moving = tuple(dict.fromkeys([*moved, *made, *later]))

    def _holder(self, place: Place) -> MutableMapping[str, Any]:
        number, kind, _ = place
        if number < 0:
            return self._owned[number]
        module = self._modules[number]
        if kind in ("buffer", "attribute"):
            return module._buffers if kind == "buffer" else vars(module)
        keeper = vars(module).get(kind.removeprefix(_WITHIN))
        return vars(keeper) if is_keeper(keeper) else {}

    def _at(self, place: Place) -> Any:
        holder, name = self._holder(place), place[2]
        return holder[name] if name in holder else _ABSENT  # noqa: SIM401 - buffers of TorchScript have no `get`

    def _put(self, place: Place, value: Any) -> None:
        if value is _ABSENT:
            self._holder(place).pop(place[2], None)
        else:
            self._holder(place)[place[2]] = value

    def _buffers(self) -> list[Place]:
        modules = enumerate(self._modules)
        return [
            (n, "buffer", name) for n, module in modules for name, kept in module._buffers.items() if kept is not None
        ]

    def _attributes(self) -> frozenset[Place]:
        """What modules that users wrote keep besides, while it is not known which of it matters."""
        if not self._learning:
            return frozenset()
        users = [(number, module) for number, module in enumerate(self._modules) if written_by_a_user(module)]
        owned = [(n - len(self._owned), "attribute", kept) for n, kept in enumerate(self._owned)]
        held = [
            (number, _WITHIN + name, vars(value))
            for number, module in users
            for name, value in vars(module).items()
            if is_keeper(value)
        ]
        kept = [(number, "attribute", vars(module)) for number, module in users]
        return frozenset(
            (number, kind, name)
            for number, kind, values in (*kept, *held, *owned)
            for name, value in values.items()
            if name not in _OF_EVERY_MODULE and self._is_state(value)
        )


def _kept_by(owner: Any) -> MutableMapping[str, Any]:
    return Variables(owner) if isinstance(owner, FunctionType) else vars(owner)


def _writes(tensor: Any) -> int:
    return tensor._version if isinstance(tensor, Tensor) and not tensor.is_inference() else 0
