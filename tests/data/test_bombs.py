"""Small files that ask for much memory, for ever, or for another program: refused, or read within bounds."""

from __future__ import annotations

import gzip
import io
import os
import resource
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradreg.data import cifar10, fashion_mnist, load
from gradreg.data.decode import Decoder
from gradreg.errors import DataError

HERE = Path(__file__)


def pixel_row(width: int, height: int, path: Path) -> Path:
    """A grey PNG of that size, as few bytes as possible."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"\x00" * (height * (width + 1)), 9)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def archive(path: Path, *members: tuple[str, bytes, str], content: int = 0) -> None:
    """A tar.gz of (name, type, target) members; those that are files have that many zero bytes."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, content if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(bytes(member.size)))


@pytest.mark.parametrize("shape", [(1, 5000), (1, 60_000), (60_000, 1), (3, 4000)])
@pytest.mark.parametrize("decoder", [Decoder(224), Decoder(224, rectangular=True), Decoder(224, 0.25), Decoder(32)])
def test_a_long_thin_image_is_read_within_bounds(shape: tuple[int, int], decoder: Decoder, tmp_path: Path) -> None:
    """Resized whole, 1×5000 takes 1.5 GB and 1×60000 does not end."""
    path = pixel_row(*shape, tmp_path / "x.png")
    assert path.stat().st_size < 500
    view = decoder.view(str(path), 0)
    assert min(view.size) == decoder.size
    assert np.asarray(view).max() == 0


def test_a_long_image_keeps_its_middle(tmp_path: Path) -> None:
    """8×800, black, grey, white by thirds: the middle is grey."""
    thirds = np.repeat(np.array([0, 120, 255], np.uint8), [270, 260, 270])
    Image.fromarray(np.broadcast_to(thirds, (8, 800)).copy()).save(tmp_path / "x.png")
    assert set(np.asarray(Decoder(16).view(str(tmp_path / "x.png"), 0)).flatten().tolist()) == {120}


def test_too_many_pixels_are_refused(tmp_path: Path) -> None:
    path = pixel_row(10_000, 9_000, tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x\.png cannot be decoded .*(bomb|10000×9000 pixels)"):
        Decoder(32).view(str(path), 0)
    path.write_bytes(pixel_row(1000, 9000, path).read_bytes()[:50])
    with pytest.raises(DataError, match=r"1000×9000 pixels, and 1,548,576 is the limit for its size"):
        Decoder(32).view(str(path), 0)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_no_other_program_is_started_for_an_image(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would look for Ghostscript to draw an EPS, whatever its file is called."""
    path = tmp_path / f"x.{suffix}"
    Image.new("RGB", (8, 8)).save(path, "EPS")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(DataError, match=r"cannot be decoded as an image \(cannot identify"):
        Decoder(32).view(str(path), 0)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "link to a pipe"])
def test_what_is_no_regular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, 0o140600)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"x\.png must be a regular file; got a (pipe, socket or device|folder)"):
        Decoder(32).view(str(path), 0)


NAME = "cifar-10-batches-bin/data_batch_1.bin"
LINKS = {
    "a link to itself": [(NAME, tarfile.SYMTYPE, "data_batch_1.bin")],
    "a link to the machine": [(NAME, tarfile.SYMTYPE, "/etc/passwd")],
    "a hard link to itself": [(NAME, tarfile.LNKTYPE, NAME)],
    "a hard link to nothing": [(NAME, tarfile.LNKTYPE, "nowhere")],
    "a folder": [(NAME, tarfile.DIRTYPE, "")],
    "a device": [(NAME, tarfile.CHRTYPE, "")],
    "a pipe": [(NAME, tarfile.FIFOTYPE, "")],
    "twice": [(NAME, tarfile.REGTYPE, ""), (NAME, tarfile.REGTYPE, "")],
}


@pytest.mark.parametrize("kind", LINKS)
def test_an_archive_of_links_is_refused(kind: str, tmp_path: Path) -> None:
    archive(tmp_path / "cifar-10-binary.tar.gz", *LINKS[kind])
    with pytest.raises(DataError, match=r"data_batch_1\.bin in it is (not a plain file|there twice)"):
        load("cifar10", tmp_path)


def test_names_that_lead_out_of_an_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    names = ["/etc/passwd", "../out", f"/{NAME}", f"../{NAME}", "cifar-10-batches-bin/../out"]
    archive(tmp_path / "data" / "cifar-10-binary.tar.gz", *((name, tarfile.REGTYPE, "") for name in names))
    with pytest.raises(DataError, match="it has 0 of 6 data files"):
        load("cifar10", tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_long_names_inside_each_other_are_refused(tmp_path: Path) -> None:
    """tarfile reads a header that says "the next header has a longer name" by calling itself."""
    member = tarfile.TarInfo("././@LongLink")
    member.type = tarfile.GNUTYPE_LONGNAME
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) * 20_000))
    with pytest.raises(DataError, match="truncated or damaged"):
        load("cifar10", tmp_path)


def bombs(folder: Path) -> None:
    """Run in a process of its own: each is refused, and none takes more memory than what is asked for."""
    gz = folder / "train-images-idx3-ubyte.gz"
    with gzip.open(gz, "wb", compresslevel=1) as file:
        for _ in range(600):
            file.write(bytes(1 << 20))
    for name in fashion_mnist._MD5:
        if not (folder / f"{name}.gz").exists():
            (folder / f"{name}.gz").symlink_to(gz)
    tar = folder / "cifar" / "cifar-10-binary.tar.gz"
    tar.parent.mkdir()
    with tarfile.open(tar, "w:gz", compresslevel=1) as packed:
        for name in ("other", NAME):
            member = tarfile.TarInfo(name)
            member.size = 600 << 20
            with open("/dev/zero", "rb") as zeros:
                packed.addfile(member, zeros)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, place in (("fashion-mnist", folder), ("cifar10", tar.parent)):
        try:
            load(name, place)
        except DataError as error:
            sys.stdout.write(f"{error}\n")
    sys.stdout.write(f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}\n")


@pytest.mark.slow
def test_archives_that_unpack_to_much_more_are_given_up(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); import test_bombs; from pathlib import Path\n"
    code += f"test_bombs.bombs(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    first, second, mebibytes = done.stdout.splitlines()
    assert "must unpack to at most 268,435,456 bytes; got more" in first
    assert "must unpack to at most 536,870,912 bytes; got more" in second
    assert int(mebibytes) < 1100, "bytes are joined once: twice the limit"


def test_the_limit_of_an_archive_is_that_of_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as above at a small scale: a member beyond the limit, and members that are beyond it together."""
    monkeypatch.setattr(cifar10, "_MOST_UNPACKED", 100_000)
    archive(tmp_path / "cifar-10-binary.tar.gz", *((f"other{i}", tarfile.REGTYPE, "") for i in range(20)), content=9000)
    with pytest.raises(DataError, match=r"tar\.gz must unpack to at most 100,000 bytes; got more"):
        load("cifar10", tmp_path)
    monkeypatch.setattr(cifar10, "MOST", 1000)
    archive(tmp_path / "cifar-10-binary.tar.gz", (NAME, tarfile.REGTYPE, ""), content=2000)
    with pytest.raises(DataError, match=r"data_batch_1\.bin in it has 2,000 bytes"):
        load("cifar10", tmp_path)
