"""Damage to files that knows nothing of what they mean: to bytes, and to which file is where."""

import os
from pathlib import Path
from random import Random


def flip(path: Path, folder: Path, other: Path, random: Random) -> str:
    data, bits = bytearray(path.read_bytes()), random.choice((1, 1, 1, 8))
    places = [random.randrange(8 * len(data)) for _ in range(bits)] if data else []
    for place in places:
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    return f"bits {places}"


def truncate(path: Path, folder: Path, other: Path, random: Random) -> str:
    data = path.read_bytes()
    kept = random.choice((0, 1, 7, 8, len(data) // 2, max(0, len(data) - 1), random.randint(0, len(data))))
    path.write_bytes(data[:kept])
    return f"to {kept} of {len(data)}"


def cut(path: Path, folder: Path, other: Path, random: Random) -> str:
    data = path.read_bytes()
    start = random.randint(0, len(data))
    end = min(len(data), start + random.choice((1, 2, 8, 100, 1000)))
    path.write_bytes(data[:start] + data[end:])
    return f"{start}:{end}"


def repeat(path: Path, folder: Path, other: Path, random: Random) -> str:
    data = path.read_bytes()
    start = random.randint(0, len(data))
    end = min(len(data), start + random.choice((1, 2, 8, 100, 1000)))
    path.write_bytes(data[:end] + data[start:])
    return f"{start}:{end}"


def overwrite(path: Path, folder: Path, other: Path, random: Random) -> str:
    data = bytearray(path.read_bytes())
    start, count = random.randint(0, len(data)), random.choice((1, 4, 8, 64))
    fill = random.choice((b"\x00", b"\xff", b"\xed\xa0\x80", b"9", b"{", b"\n", random.randbytes(1)))
    data[start : start + count] = (fill * count)[:count]
    path.write_bytes(data)
    return f"{start}+{count} with {fill!r}"


def insert(path: Path, folder: Path, other: Path, random: Random) -> str:
    data, start = path.read_bytes(), random.randint(0, path.stat().st_size)
    words = random.choice((b"\x00", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000, random.randbytes(16), b"1e999", b"-"))
    path.write_bytes(data[:start] + words + data[start:])
    return f"{words[:10]!r} at {start}"


def exchange(path: Path, folder: Path, other: Path, random: Random) -> str:
    """With another file of the folder."""
    mate = random.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
    mine, theirs = path.read_bytes(), mate.read_bytes()
    path.write_bytes(theirs)
    mate.write_bytes(mine)
    return f"with {mate.relative_to(folder)}"


def substitute(path: Path, folder: Path, other: Path, random: Random) -> str:
    """The file of the same name of another folder."""
    theirs = other / path.relative_to(folder)
    if theirs.is_file():
        path.write_bytes(theirs.read_bytes())
    return ""


def misplace(path: Path, folder: Path, other: Path, random: Random) -> str:
    """No file where one was, or something that is none."""
    path.unlink()
    kind = random.choice(("gone", "folder", "pipe", "device", "loop"))
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    return kind
