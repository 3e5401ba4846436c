"""Files of safetensors: read as the library reads them, into memory of their own, and refused if they are hostile."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gradreg import storage, tensorfiles
from gradreg.errors import DataError
from gradreg.reading import read_bytes

TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64,
]  # fmt: skip


def test_every_type_and_shape_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    shapes = [(), (0,), (3,), (2, 0, 5), (2, 3, 4)]
    torch.manual_seed(0)
    tensors = {f"{dtype} {shape}": (9 * torch.rand(shape)).to(dtype) for dtype in TYPES for shape in shapes}
    save_file(tensors, tmp_path / "t.safetensors", {"a": "b", "ü": ""})
    found, metadata = tensorfiles.load(tmp_path / "t.safetensors", "weights")
    assert metadata == {"a": "b", "ü": ""}
    assert found.keys() == tensors.keys()
    for name, tensor in load_file(tmp_path / "t.safetensors").items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_what_was_read_stays_when_the_file_is_written_to_or_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    storage.write(path, "numbers", {"x": torch.arange(100_000)}, {})
    found, _ = storage.read(path, "numbers")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 800)
        file.write(bytes(800))
    assert int(found["x"][-1]) == 99_999
    os.truncate(path, 100)  # mapped, the next look would end the process
    assert int(found["x"].sum()) == 99_999 * 50_000


def written(path: Path, header: Any, body: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def entry(dtype: Any = "F32", shape: Any = (1,), place: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": place}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": entry()}, None),
        ({"a": entry(), "__metadata__": None}, None),
        (b'{"a":[1], "a":[2]}', "'a' is there twice"),
        (b"[" * 100_000, "nested too deeply"),
        ({"a": entry(), "__metadata__": {"x": 1}}, "table of texts"),
        ({"a": entry(), "__metadata__": []}, None),
        ({"a": entry(), "__metadata__": [1]}, "table of texts"),
        ({"a": 1}, "must have a dtype, a shape and data_offsets"),
        ({"a": {**entry(), "x": 1}}, "must have a dtype, a shape and data_offsets"),
        ({"a": entry("F4")}, "a type that torch has; got 'F4'"),
        ({"a": entry([])}, "a type that torch has"),
        ({"a": entry(shape=[2])}, "as many bytes as its shape says; got 4"),
        ({"a": entry(shape=[-1])}, "whole numbers from 0"),
        ({"a": entry(shape=[True])}, "whole numbers from 0"),
        ({"a": entry(shape=[1.0])}, "whole numbers from 0"),
        ({"a": entry(shape=[1] * 65)}, "at most 64 sides"),
        ({"a": entry(shape=[0, 2**62, 2**62], place=[0, 0]), "b": entry()}, "overflow"),
        ({"a": entry(shape=[2**62, 4], place=[0, 2**66])}, "whole numbers from 0"),
        ({"a": entry(place=[4, 0])}, "as many bytes as its shape says; got -4"),
        ({"a": entry(place=[0, 4, 8])}, "two offsets"),
        ({"a": entry(place=[4, 8])}, "must follow each other"),
        ({"a": entry(), "b": entry()}, "must follow each other"),
        ({"a": entry(), "b": entry(place=[4, 8])}, "must have 4 bytes, as the file has after its header; got 8"),
        ({}, "must have 4 bytes"),
        ({"a": entry("BOOL", [4])}, "must hold truth values; got 7"),
        ({str(i): entry(shape=[0], place=[0, 0]) for i in range(70_000)}, "at most 65,536 tensors; got 70,000"),
    ],
)
def test_a_header_is_right_or_one_sentence(header: Any, words: str | None, tmp_path: Path) -> None:
    path = written(tmp_path / "t.safetensors", header, b"\x01\x00\x07\x00")
    if words is None:
        assert tensorfiles.load(path, "weights")[0].keys() == {"a"}
        return
    with pytest.raises(DataError, match=words) as caught:
        tensorfiles.load(path, "weights")
    assert str(caught.value).startswith(f"{path} cannot be read as weights: ")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100])
def test_a_header_beyond_the_file_is_refused(length: int, tmp_path: Path) -> None:
    (tmp_path / "t.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(DataError, match="must be within the file"):
        tensorfiles.load(tmp_path / "t.safetensors", "weights")
    (tmp_path / "t.safetensors").write_bytes(b"{}")
    with pytest.raises(DataError, match="must be within the file"):
        tensorfiles.load(tmp_path / "t.safetensors", "weights")


def test_a_sparse_file_takes_no_memory_for_what_its_header_does_not_name(tmp_path: Path) -> None:
    path = written(tmp_path / "t.safetensors", {"a": entry()}, bytes(4))
    os.truncate(path, 10**10)
    with pytest.raises(DataError, match=r"must have 9,999,\d{3},\d{3} bytes, as the file has after its header; got 4"):
        tensorfiles.load(path, "weights")


def test_a_file_that_becomes_a_pipe_after_it_was_seen_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("gradreg.reading.check_regular", lambda path: 10)
    with pytest.raises(DataError, match="it was replaced just now"):
        read_bytes(tmp_path / "pipe")
