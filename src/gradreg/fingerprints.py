"""Fingerprints of images and weights: one identity for each, wherever work is resumed, compared or merged."""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import CodeType

import torch
from torch import Tensor, nn


def image_keys(x: Tensor) -> Tensor:
    """A 64-bit fingerprint of the pixels per image, in single precision; on the CPU."""
    rows = x.detach().to("cpu", torch.float32).resolve_neg().contiguous().numpy()
    return torch.tensor(
        [int.from_bytes(_digest(row.tobytes(), 8), "little", signed=True) for row in rows], device="cpu"
    )


def joint_key(keys: Iterable[int]) -> str:
    """One fingerprint for a whole sequence of keys, in this order."""
    return _digest(",".join(map(str, keys)).encode(), 16).hex()


def images_key(x: Tensor, *columns: Tensor) -> str:
    """One fingerprint for a batch of images and further columns, such as labels or positions."""
    return joint_key([*image_keys(x).tolist(), *(value for column in columns for value in column.tolist())])


def model_key(model: nn.Module, prefix: str = "") -> str:
    """A fingerprint of a model's layers and weights; `prefix` is whatever else its outputs depend on."""
    digest = blake2b(prefix.encode(), digest_size=16)
    digest.update(repr(model).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(_content(value.detach().cpu()))
    return digest.hexdigest()


def tensor_key(tensor: Tensor) -> str:
    """A fingerprint of the numbers of a tensor, their type and its shape."""
    about = f"{tensor.dtype} {tuple(tensor.shape)} "
    return _digest(about.encode() + _content(tensor.detach().cpu()), 16).hex()


def answers_key(logits: Tensor) -> str:
    """A fingerprint of a few answers: coarse, so that it does not depend on the order in which sums were made."""
    scores = logits.detach().cpu().double()
    largest = scores.abs().amax(1)
    parts = torch.stack([scores.mean(1), scores.std(1)]) / largest
    rounded = [[f"{round(part, 3) + 0.0:.3f}" for part in row] for row in parts.tolist()]  # -0 is 0
    said = scores.argmax(1).tolist(), [f"{each:.3g}" for each in largest.tolist()], rounded
    return _digest(repr(said).encode(), 16).hex()


def code_key(function: Callable[..., object]) -> str:
    """A fingerprint of what a function does, wherever it stands in its file: its name and its code."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return _digest(repr((name, None if code is None else _instructions(code))).encode(), 16).hex()


def _instructions(code: CodeType) -> tuple[object, ...]:
    """Without lines and addresses, which differ between two runs of one program."""
    return code.co_code.hex(), code.co_names, code.co_varnames, tuple(map(_constant, code.co_consts))


def _constant(value: object) -> object:
    """A set is in an order that changes from process to process."""
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return _instructions(value) if isinstance(value, CodeType) else repr(value)


def _content(tensor: Tensor) -> bytes:
    """The numbers of a tensor, however it keeps them."""
    if tensor.is_quantized:
        return repr(tensor.dequantize().tolist()).encode() + str(tensor.qscheme()).encode()
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return dense.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _digest(data: bytes, size: int) -> bytes:
    return blake2b(data, digest_size=size).digest()
