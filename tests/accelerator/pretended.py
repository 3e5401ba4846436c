"""A device that is pretended: its tensors hold a host tensor and compute on it, and refuse what CUDA refuses.

Tensors of two devices do not mix, except for numbers (0-dim host tensors in pointwise operations) and host indices; a
host generator cannot draw for the device; `.numpy()` is refused. The device has a random stream of its own. Whatever
would make the host wait for CUDA is noted: looks (values or shapes that the host asks for: `item`, `nonzero`, a mask as
an index, a copy to the host) and sends (copies from the host that block).

torch keeps one such backend per process, and only before the first backward: see conftest.py.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

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


@dataclass
class Waits:
    """What made the host wait for the device, each as the operation and the line of gradreg that asked for it."""

    looks: list[str] = field(default_factory=list)
    sends: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.looks) + len(self.sends)


_watching: list[Waits] = []
_stream: list[Tensor] = []
_generators: "WeakSet[Generator]" = WeakSet()


@contextmanager
def watching() -> Iterator[Waits]:
    """Note the waits of what happens inside."""
    waits = Waits()
    _watching.append(waits)
    try:
        yield waits
    finally:
        _watching.remove(waits)


def device() -> torch.device:
    """The only device of that kind."""
    return torch.device(NAME, 0)


class OnDevice(Tensor):
    """A tensor of the device. Autograd records it as any other; its storage is a host tensor that nobody else sees."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
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
    _library.append(library)


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
        with _drawing(func, args, kwargs):
            return OnDevice(func(*args, **kwargs, device="cpu"))

    return make


def _compute(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = func._schema.name.removeprefix("aten::")
    if name == "_to_copy" and torch.device(kwargs.get("device") or NAME).type != NAME:
        _note("looks", "copy to the host")
        return func(*_held(args), **_held(kwargs))
    if name == "copy_":
        _copied(args[0], args[1], len(args) > 2 and args[2])
    else:
        _refuse_a_mixture(func, name, args, kwargs)
    if name in _LOOKS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _note("looks", name)
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    with _drawing(func, args, kwargs):
        found = func(*_held(args), **_held(kwargs))
    return _given_back(func, args, kwargs, found)


def _held(values: Any) -> Any:
    return tree_map(lambda value: value.held if isinstance(value, OnDevice) else value, values)


def _copied(target: Tensor, source: Tensor, non_blocking: bool) -> None:
    if not isinstance(target, OnDevice):
        _note("looks", "copy to the host")
    elif not isinstance(source, OnDevice) and not non_blocking:
        _note("sends", "copy to the device")


def _refuse_a_mixture(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    free: Sequence[Any] = ()
    if name in _INDEXING:
        free = [index for index in args[1] if index is not None]
        masks = any(index.dtype in (torch.bool, torch.uint8) for index in free)
        # `x[mask] = number` fills, and a shape is not asked for.
        if masks and not (name.startswith("index_put") and args[2].numel() == 1):
            _note("looks", "mask as an index")
        elif any(not isinstance(index, OnDevice) for index in free):
            _note("sends", "host index")
    numbers = torch.Tag.pointwise in func.tags or name in _TAKES_NUMBERS
    for value in tree_leaves((args, kwargs)):
        foreign = isinstance(value, Tensor) and not isinstance(value, OnDevice)
        if foreign and not any(value is index for index in free):
            if not (numbers and value.dim() == 0) or any(value is each for each in _written(func, args, kwargs)):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{device()} and {value.device}! ({name})"
                )
            if name in ("where", "index_put", "index_put_"):
                _note("sends", f"host number in {name}")


@contextmanager
def _swapped_stream() -> Iterator[None]:
    host = torch.get_rng_state()
    torch.set_rng_state(_stream[0])
    try:
        yield
    finally:
        _stream[0] = torch.get_rng_state()
        torch.set_rng_state(host)


def _drawing(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Random numbers come from a generator of the device, or from its own stream."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch._C.Generator)]
    for source in given:
        # A dispatched generator is another Python object than the one that was passed, with the same state.
        if not any(torch.equal(source.get_state(), known.get_state()) for known in _generators):
            raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    seeded = torch.Tag.nondeterministic_seeded in func.tags
    return _swapped_stream() if seeded and not given else nullcontext()


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that the operation writes to, in their order."""
    named = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | kwargs
    described = [each for each in func._schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    return [named[each.name] for each in described if named.get(each.name) is not None]


def _given_back(func: Any, args: Sequence[Any], kwargs: dict[str, Any], found: Any) -> Any:
    returns = func._schema.returns
    if returns and returns[0].alias_info is not None and returns[0].alias_info.is_write:
        written = _written(func, args, kwargs)
        for tensor in written:
            if isinstance(tensor, OnDevice) and tensor.shape != tensor.held.shape:
                raise NotImplementedError(f"{func} changes a shape in place, which the pretended device cannot.")
        return written[0] if len(returns) == 1 else tuple(written)
    return tree_map(lambda value: OnDevice(value) if isinstance(value, Tensor) else value, found)


def _note(kind: str, what: str) -> None:
    if _watching:
        where = _line_of_gradreg()
        for waits in _watching:
            getattr(waits, kind).append(f"{what} at {where}")


def _line_of_gradreg() -> str:
    frame: Any = sys._getframe()
    while frame is not None and "gradreg/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "the caller" if frame is None else f"{frame.f_code.co_filename.rpartition('gradreg/')[2]}:{frame.f_lineno}"
