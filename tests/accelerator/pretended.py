"""A device that is pretended: its tensors hold a host tensor and compute on it, and refuse what CUDA refuses.

Tensors of two devices do not mix, except for numbers (0-dim host tensors in pointwise operations) and host indices; a
host generator cannot draw for the device; `.numpy()` is refused. The device has a random stream of its own. Whatever
would make the host wait for CUDA is noted: looks (values or shapes that the host asks for: `item`, `nonzero`, a mask as
an index, a copy to the host) and sends (copies from the host that block).

torch keeps one such backend per process, and only before the first backward: see conftest.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils import backend_registration

from accelerator.waits import note

NAME = "pretended"
# Factories that resize an empty tensor in place.
_RESIZING = (
    "arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "randperm", "randperm.generator",
)  # fmt: skip
_LOOKS = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "multinomial", "_linalg_check_errors",
    "_unique2", "unique_dim", "unique_consecutive",
}  # fmt: skip
_INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
# Take a host number although they are not pointwise.
_TAKES_NUMBERS = {"fill", "fill_", "copy_", "index_put", "index_put_", "_index_put_impl_", "where"}

Run = Callable[..., Any]


_stream: list[Tensor] = []
_generators: "WeakSet[Generator]" = WeakSet()
_refused: set[torch.dtype] = set()


@contextmanager
def without_doubles() -> Iterator[None]:
    """Inside, the device has no double precision, as Apple's has none."""
    _refused.add(torch.float64)
    try:
        yield
    finally:
        _refused.clear()


def device() -> torch.device:
    """The only device of that kind."""
    return torch.device(NAME, 0)


class OnDevice(Tensor):
    """A tensor of the device. Autograd records it as any other; its storage is a host tensor that nobody else sees."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        if held.dtype in _refused:
            raise TypeError(f"The device has no {held.dtype}.")
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, device=device()
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _compute(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.cpu().numpy()
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.cpu()!r} on {self.device}"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else repr(self)


class Generator(torch._C.Generator):
    """torch.Generator, for the pretended device too: torch has no way to register one from Python."""

    def __new__(cls, device: torch.device | str = "cpu") -> "Generator":
        pretended = torch.device(device).type == NAME
        made: Generator = super().__new__(cls, "cpu" if pretended else device)  # type: ignore[call-arg]
        if pretended:
            _generators.add(made)
        return made

    def __init__(self, device: torch.device | str = "cpu") -> None:
        pass


class _Module(backend_registration._DummyBackendModule):
    """What torch.get_device_module returns: the random stream and what autocast asks."""

    def get_rng_state(self, device: Any = None) -> Tensor:
        return _stream[0].clone()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        _stream[0] = state.clone()

    def manual_seed_all(self, seed: int) -> None:
        _stream[:] = [torch._C.Generator().manual_seed(seed).get_state()]

    manual_seed = manual_seed_all

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        return "a pretended accelerator"


_library: list[torch.library.Library] = []


def register() -> None:
    """Make the device known to torch, once and before anything was differentiated in this process."""
    if _library:
        return
    module = _Module()
    module.manual_seed_all(0)
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    torch.Generator = Generator  # type: ignore[misc, assignment]
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    for name in _RESIZING:
        library.impl(name, _factory(name), "PrivateUse1")
    autocast = torch.library.Library("_", "IMPL")
    autocast.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # it has a name and casts nothing
    _library.extend([library, autocast])


def _empty(size: Sequence[int], dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return OnDevice(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = None, **_: Any) -> Tensor:
    return OnDevice(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """The way of torch.tensor and torch.as_tensor, which copy below the dispatch to subclasses."""
    _copied(target, source, non_blocking)
    held_target, held_source = _held([target, source])
    held_target.copy_(held_source)
    return target


def _factory(name: str) -> Run:
    """The host's factory, and its result on the device."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def make(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        with _drawing(_facts(func).seeded, (*args, *kwargs.values())):
            return OnDevice(func(*args, **kwargs, device="cpu"))

    return make


@dataclass(frozen=True)
class _Facts:
    """What the schema of an operation says about it."""

    name: str
    pointwise: bool
    seeded: bool
    written: tuple[tuple[int, str], ...]
    """The arguments that it writes to, by position and name."""
    returns_written: int
    """How many of them it returns in place of a result."""


@cache
def _facts(func: Any) -> _Facts:
    schema = func._schema
    written = [
        (place, each.name)
        for place, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    ]
    returned = [each for each in schema.returns if each.alias_info is not None and each.alias_info.is_write]
    pointwise, seeded = torch.Tag.pointwise in func.tags, torch.Tag.nondeterministic_seeded in func.tags
    return _Facts(schema.name.removeprefix("aten::"), pointwise, seeded, tuple(written), len(returned))


def _compute(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    about = _facts(func)
    if torch.device(kwargs.get("device") or NAME).type != NAME:
        if about.name == "_to_copy":
            note("looks", "copy to the host")
        return func(*_held(args), **_held(kwargs))
    if about.name == "copy_":
        _copied(args[0], args[1], len(args) > 2 and args[2])
    else:
        _refuse_a_mixture(about, args, kwargs)
    if about.name in _LOOKS or (about.name == "repeat_interleave" and kwargs.get("output_size") is None):
        note("looks", about.name)
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    with _drawing(about.seeded, (*args, *kwargs.values())):
        found = func(*_held(args), **_held(kwargs))
    return _given_back(about, args, kwargs, found)


def _held(value: Any) -> Any:
    """The same with host tensors; torch's own walk through nested values takes longer than the arithmetic."""
    if isinstance(value, OnDevice):
        return value.held
    if isinstance(value, dict):
        return {name: _held(each) for name, each in value.items()}
    return type(value)(map(_held, value)) if isinstance(value, list | tuple) else value


def _wrapped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return OnDevice(value)
    return type(value)(map(_wrapped, value)) if isinstance(value, list | tuple) else value


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _copied(target: Tensor, source: Tensor, non_blocking: bool) -> None:
    if not isinstance(target, OnDevice):
        note("looks", "copy to the host")
    elif not isinstance(source, OnDevice) and not non_blocking:
        note("sends", "copy to the device")


def _refuse_a_mixture(about: _Facts, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    if about.name in _INDEXING:
        indices = [index for index in args[1] if index is not None]
        masks = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        # `x[mask] = number` fills, and a shape is not asked for.
        if masks and not (about.name.startswith("index_put") and args[2].numel() == 1):
            note("looks", "mask as an index")
        elif any(not isinstance(index, OnDevice) for index in indices):
            note("sends", "host index")
        args = [args[0], *args[2:]]
    numbers = about.pointwise or about.name in _TAKES_NUMBERS
    for value in _tensors((*args, *kwargs.values())):
        if isinstance(value, OnDevice):
            continue
        written = any(value is each for each in _written(about, args, kwargs))
        if value.dim() > 0 or not numbers or written:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{device()} and {value.device}! ({about.name})"
            )
        if about.name in ("where", "index_put", "index_put_"):
            note("sends", f"host number in {about.name}")


@contextmanager
def _swapped_stream() -> Iterator[None]:
    host = torch.get_rng_state()
    torch.set_rng_state(_stream[0])
    try:
        yield
    finally:
        _stream[0] = torch.get_rng_state()
        torch.set_rng_state(host)


def _drawing(seeded: bool, values: Sequence[Any]) -> AbstractContextManager[None]:
    """Random numbers come from a generator of the device, or from its own stream."""
    if not seeded:
        return nullcontext()
    given = [value for value in values if isinstance(value, torch._C.Generator)]
    for source in given:
        # A dispatched generator is another Python object than the one that was passed, with the same state.
        if not any(torch.equal(source.get_state(), known.get_state()) for known in _generators):
            raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    return nullcontext() if given else _swapped_stream()


def _written(about: _Facts, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    found = [args[place] if place < len(args) else kwargs.get(name) for place, name in about.written]
    return [each for each in found if each is not None]


def _given_back(about: _Facts, args: Sequence[Any], kwargs: dict[str, Any], found: Any) -> Any:
    if not about.returns_written:
        return _wrapped(found)
    written = _written(about, args, kwargs)
    for tensor in written:
        if isinstance(tensor, OnDevice) and tensor.shape != tensor.held.shape:
            raise NotImplementedError(f"{about.name} changes a shape in place, which the pretended device cannot.")
    return written[0] if about.returns_written == 1 else tuple(written)
