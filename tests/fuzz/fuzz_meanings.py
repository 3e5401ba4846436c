"""Damage to what files mean: to values of JSON and TOML, tensors, tables, packed files and archives.

Each function changes one thing in a file that is still what its name says, and says what it did.
"""

import gzip
import io
import json
import struct
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fuzz_bytes import cut, flip, overwrite, repeat, truncate

from gradreg.config import toml
from gradreg.reading import toml_table

NAN, INF = float("nan"), float("inf")
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -5, 2**31, 2**63, 10**400, 0.5, -0.5, 1e308, -1e308, 1e-320, NAN, INF, -INF, "", "1",
    "nan", "x", "ü∇", "\ud800", "../..", "x" * 100_000, [], {}, [[]], [NAN], {"float": "nan"}, {"float": "-inf"},
    {"float": "x"}, {"name": "torch.hub:load"}, [1, "two", None], {"": None},
)  # fmt: skip
# Safetensors' names of types that have as many bytes, so that a file stays well formed under another one.
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F16": 2, "BF16": 2, "I16": 2, "F32": 4, "I32": 4, "F64": 8, "I64": 8}
_FLOATS = {"F16": "<e", "F32": "<f", "F64": "<d"}
_WHOLE = {"I64": "<q", "I32": "<i"}


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value inside of a value is."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in inside for place in ((*at, key), *_paths(item, (*at, key)))]


def tweak(value: Any, random: Random) -> str:
    """Change one thing inside of tables and lists: take it away, rename, replace, exchange, wrap or repeat it."""
    places = _paths(value)
    if not places:
        return "nothing"
    *at, key = random.choice(places)
    holder = value
    for step in at:
        holder = holder[step]
    kind = random.choice(("delete", "rename", "odd", "odd", "odd", "exchange", "wrap", "repeat", "scale"))
    item = holder[key]
    if kind == "delete":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[random.choice((f"{key}x", "", str(key)[:-1], "name", "float"))] = holder.pop(key)
    elif kind == "exchange":
        mate = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[key], holder[mate] = holder[mate], item
    elif kind == "wrap":
        for _ in range(random.choice((1, 2, 60))):
            holder[key] = [holder[key]] if random.random() < 0.5 else {"a": holder[key]}
    elif kind == "repeat" and isinstance(item, list):
        holder[key] = item * random.choice((0, 2))
    elif kind == "scale" and isinstance(item, int | float) and not isinstance(item, bool):
        holder[key] = item * random.choice((-1, 2, 0, 1e30)) + random.choice((0, 1, -1))
    else:
        holder[key] = random.choice(ODD)
    return f"{kind} {'.'.join(map(str, (*at, key)))}"[:200]


def _as_json(value: Any, random: Random) -> str:
    text = json.dumps(value, indent=1)
    if random.random() < 0.05 and '": ' in text:  # a key twice, which a table in Python cannot have
        line = random.choice([line for line in text.split("\n") if '": ' in line])
        text = text.replace(line, f"{line}\n{line}" if line.endswith(",") else f"{line},\n{line}", 1)
    return text


def json_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    value = json.loads(path.read_bytes())
    said = tweak(value, random)
    path.write_bytes(_as_json(value, random).encode("utf-8", "surrogatepass"))
    return said


def lines_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    """A file of a JSON object per line."""
    lines = path.read_text().splitlines()
    row = random.randrange(len(lines))
    kind = random.choice(("tweak", "tweak", "tweak", "delete", "repeat", "exchange"))
    said = kind
    if kind == "tweak":
        value = json.loads(lines[row])
        said = tweak(value, random)
        lines[row] = json.dumps(value)
    elif kind == "delete":
        del lines[row]
    elif kind == "repeat":
        lines.insert(row, lines[row])
    else:
        lines[row], lines[0] = lines[0], lines[row]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    return f"line {row + 1} {said}"


def toml_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    value = tomllib.loads(path.read_text())
    said = tweak(value, random)
    try:
        text = toml.dumps(value)
    except Exception:  # None, which TOML has no word for
        text = path.read_text() + random.choice(
            (
                "x = nan\n",
                "a." * 50_000 + "a = 1\n",
                "x = " + "[" * 100_000,
                "epochs = 3\nepochs = 4\n",
                "x = 2020-01-01\n",
            )
        )
        said = "appended"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return said


def tensors_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    """Another name, type, shape or number of a tensor, or another fact in the header of safetensors."""
    data = path.read_bytes()
    header, body = _header(data), bytearray(data[8 + int.from_bytes(data[:8], "little") :])
    names = [name for name in header if name != "__metadata__"]
    name = random.choice(names)
    kind = random.choice(("rename", "delete", "type", "shape", "numbers", "numbers", "facts", "facts", "kind", "swap"))
    said = kind
    if kind == "rename":
        header[random.choice((f"{name}x", name[:-1], "", "epoch"))] = header.pop(name)
    elif kind == "delete":
        _drop(header, body, name)
    elif kind == "type":
        alike = [each for each, count in _SIZES.items() if count == _SIZES[header[name]["dtype"]]]
        header[name]["dtype"] = random.choice(alike)
    elif kind == "shape":
        shape = header[name]["shape"]
        header[name]["shape"] = random.choice(
            (shape[::-1], [1, *shape], [*shape, 1], [-1, *shape[1:]], shape[1:], [2**62])
        )
    elif kind == "numbers":
        said = f"numbers {_numbers(header[name], body, random)}"
    elif kind == "swap":
        mate = random.choice(names)
        header[name], header[mate] = header[mate], header[name]
        said = f"swap with {mate}"
    elif kind == "kind":
        header.get("__metadata__", {})["kind"] = random.choice(
            ("", "regularity", "certificates", "checkpoint of format 1")
        )
    else:
        said = f"facts {_facts(header, random)}"
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return f"{name} {said}"


def _facts(header: dict[str, Any], random: Random) -> str:
    """Change one of the facts; earlier damage to the same file may have left none that can be read."""
    try:
        facts = json.loads(header["__metadata__"]["facts"])
    except (KeyError, TypeError, ValueError):
        return "none"
    said = tweak(facts, random)
    header["__metadata__"]["facts"] = json.dumps(facts)
    return said


def _drop(header: dict[str, Any], body: bytearray, name: str) -> None:
    start, end = header.pop(name)["data_offsets"]
    del body[start:end]
    for key, entry in header.items():
        if key != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - start) for offset in entry["data_offsets"]]


def _numbers(entry: dict[str, Any], body: bytearray, random: Random) -> str:
    start, end = entry["data_offsets"]
    form = _FLOATS.get(entry["dtype"]) or _WHOLE.get(entry["dtype"])
    if form is None or start == end:
        if start < end:
            body[random.randrange(start, end)] = random.choice((0, 1, 2, 255))
        return "byte"
    values = (NAN, INF, -INF, -5.0, 1.5, 6e4, -0.0) if entry["dtype"] in _FLOATS else (-1, -5, 2**30, 0, 3)
    value, width = random.choice(values), struct.calcsize(form)
    place = start + width * random.randrange((end - start) // width)
    body[place : place + width] = struct.pack(form, value)
    return f"[{(place - start) // width}] = {value}"


def table_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    """A cell, a row or a column of CSV."""
    rows = [line.split(",") for line in path.read_text().splitlines()]
    row = random.randrange(len(rows))
    column = random.randrange(len(rows[row]))
    kind = random.choice(("cell", "cell", "cell", "delete row", "repeat row", "delete cell", "exchange"))
    if kind == "cell":
        rows[row][column] = random.choice(
            ("", "nan", "inf", "-1", "-5", "1e999", "x", "0.5", '"', "9" * 30, "1_0", "٣")
        )
    elif kind == "delete row":
        del rows[row]
    elif kind == "repeat row":
        rows.insert(row, rows[row])
    elif kind == "delete cell":
        del rows[row][column]
    else:
        mate = random.randrange(len(rows[row]))
        rows[row][column], rows[row][mate] = rows[row][mate], rows[row][column]
    path.write_text("".join(",".join(cells) + "\n" for cells in rows))
    return f"{kind} {row}, {column}"


def gzip_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    """Damage to what is packed, packed again."""
    data = bytearray(gzip.decompress(path.read_bytes()))
    inner = path.with_name("inner")
    inner.write_bytes(data)
    said = random.choice((flip, truncate, cut, repeat, overwrite))(inner, folder, other, random)
    path.write_bytes(gzip.compress(inner.read_bytes(), 1))
    inner.unlink()
    return said


def archive_value(path: Path, folder: Path, other: Path, random: Random) -> str:
    """Members of a tar that are links, are gone, are there twice, or have other names."""
    members = _members(path.read_bytes())
    row = random.randrange(len(members))
    member, data = members[row]
    kind = random.choice(("symlink", "hard link", "delete", "repeat", "rename", "device", "exchange"))
    if kind in ("symlink", "hard link", "device"):
        member.type = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}[kind]
        member.linkname, member.size = random.choice((member.name, "/etc/passwd", "nowhere")), 0
        members[row] = (member, b"")
    elif kind == "delete":
        del members[row]
    elif kind == "repeat":
        members.append((member, data))
    elif kind == "rename":
        member.name = random.choice((f"/{member.name}", f"../{member.name}", "x" * 300))
    else:
        theirs = random.choice(members)[1]
        members[row] = (member, theirs)
        member.size = len(theirs)
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for each, content in members:
            tar.addfile(each, io.BytesIO(content))
    return f"{kind} {member.name[:60]}"


def named(*endings: str) -> Callable[[Path], bool]:
    """Files that are still what their name says; one that an earlier mutation spoilt is only damaged by bytes."""

    def fits(path: Path) -> bool:
        if not path.name.endswith(endings) or not (data := path.read_bytes()):
            return False
        try:
            return bool(_OPENED[endings[0]](data))
        except Exception:
            return False

    return fits


def _header(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return found


def _members(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(member, file.read() if (file := tar.extractfile(member)) else b"") for member in tar]


_OPENED: dict[str, Callable[[bytes], object]] = {
    ".json": lambda data: isinstance(json.loads(data), dict),
    ".jsonl": lambda data: all(isinstance(json.loads(line), dict) for line in data.splitlines()),
    ".toml": lambda data: toml_table(data.decode(), "damaged") is not None,  # tomllib takes 10 GB for a key of dots
    ".safetensors": lambda data: len(
        json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).keys() - {"__metadata__"}
    ),
    ".csv": lambda data: data.decode(),
    ".gz": gzip.decompress,
    ".tar.gz": lambda data: _members(data),
}
