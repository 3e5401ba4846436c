"""What is known of a norm: kept for as long as the object lives, whether or not it can be compared or hashed."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

_Fact = TypeVar("_Fact")


class Memory(Generic[_Fact]):
    """By the object itself: a dataclass has no hash, and two norms that call themselves equal may not be."""

    def __init__(self, begin: Callable[[], _Fact]) -> None:
        self._begin = begin
        self._kept = dict[int, tuple[ref[object], _Fact]]()

    def of(self, norm: object) -> _Fact:
        """What is known of this norm, to be added to."""
        place = id(norm)
        kept = self._kept.get(place)
        if kept is not None and kept[0]() is norm:
            return kept[1]
        found = self._begin()
        self._kept[place] = ref(norm, lambda gone: self._forget(place, gone)), found
        return found

    def _forget(self, place: int, gone: ref[object]) -> None:
        kept = self._kept.get(place)
        if kept is not None and kept[0] is gone:  # another norm may have the same place by now
            del self._kept[place]
