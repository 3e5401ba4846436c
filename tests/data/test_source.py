from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import Any

import pytest

import gradreg
from gradreg.data import cifar10, fashion_mnist, files, load, names, source
from gradreg.data.files import data_root, download
from gradreg.errors import DataError


def test_names_and_the_nearest_to_an_unknown_one() -> None:
    assert names() == (*source.DATA_SETS, "npz:PATH", "folder:PATH")
    assert {"mnist5k", "fashion-mnist", "cifar10"} <= set(names())
    for wrong, nearest in (("cifar-10", "cifar10"), ("Fashion_MNIST", "fashion-mnist"), ("mnist", "mnist5k")):
        with pytest.raises(DataError, match=rf"no data set '{wrong}' \(did you mean '{nearest}'"):
            load(wrong)
    choices = f"{', '.join(source.DATA_SETS)}, npz:PATH or folder:PATH"
    with pytest.raises(DataError, match=rf"no data set 'qqqq': choose {choices}\.$"):
        load("qqqq")


def test_help_texts_list_what_the_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.choices()
    assert before.startswith("mnist5k, fashion-mnist, cifar10")
    assert before.endswith(" or folder:PATH")
    monkeypatch.setitem(source.DATA_SETS, "leaves", source.DATA_SETS["mnist5k"])
    assert source.choices() == before.replace(", npz:PATH", ", leaves, npz:PATH")


def test_argument_then_environment_then_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADREG_DATA", str(tmp_path))
    (tmp_path / "argument").mkdir()
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root() == tmp_path
    monkeypatch.delenv("GRADREG_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert data_root() == Path("/somewhere/gradreg")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "gradreg"

    def nobody(*_: object) -> None:
        raise KeyError("there is no such user")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(DataError, match=r"no home folder to keep data in: pass --data-dir, or set \$GRADREG_DATA"):
        data_root()


def test_a_data_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data directory .*/typo does not exist"):
        load("mnist5k", tmp_path / "typo")


def serve(monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes]) -> list[str]:
    """Answers for the network; gives back the list of asked addresses."""
    asked: list[str] = []

    def answered(url: str) -> Any:
        asked.append(url)
        if url not in content:
            raise urllib.error.URLError("no network")
        return io.BytesIO(content[url])

    monkeypatch.setattr(files, "_opened", answered)
    return asked


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("fashion-mnist", "needs train-images-idx3-ubyte.gz, .* in {}/fashion-mnist"),
        ("cifar10", "needs cifar-10-batches-bin/ or .* in {}"),
    ],
)
def test_without_network_the_wanted_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str
) -> None:
    serve(monkeypatch, {})
    with pytest.raises(DataError, match=wanted.format(tmp_path) + ".*no network"):
        load(name, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_only_missing_files_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = gzip.compress(bytes((0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4)))
    labels = gzip.compress(bytes((0, 0, 8, 1, 0, 0, 0, 1, 7)))
    content = {name: images if "images" in name else labels for name in fashion_mnist._MD5}
    for name, data in content.items():
        monkeypatch.setitem(fashion_mnist._MD5, name, hashlib.md5(data).hexdigest())
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(labels)
    asked = serve(monkeypatch, {f"{fashion_mnist._ADDRESS}{name}.gz": data for name, data in content.items()})
    assert load("fashion-mnist", tmp_path).test.labels.tolist() == [7]
    assert len(asked) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.gz" for name in content)
    load("fashion-mnist", tmp_path)
    assert len(asked) == 3


def test_a_download_with_a_wrong_checksum_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {"https://x/file": b"tampered"})
    with pytest.raises(DataError, match=r"put it there; downloading https://x/file failed .*checksum"):
        download("https://x/file", tmp_path / "file", hashlib.md5(b"original").hexdigest(), "put it there")
    assert list(tmp_path.iterdir()) == []


def test_downloads_are_made_by_https_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a server sends on to another address."""
    asked = serve(monkeypatch, {})
    for url in ("http://x/file", "file:///etc/passwd", "ftp://x/file"):
        with pytest.raises(DataError, match="downloads are made by https only"):
            download(url, tmp_path / "file", "", "put it there")
    assert asked == []
    with pytest.raises(ValueError, match="by https only, not from http://elsewhere"):
        files._Encrypted().redirect_request(None, None, 302, "", {}, "http://elsewhere")
    assert all(address.startswith("https://") for address in (fashion_mnist._ADDRESS, cifar10._ADDRESS))


def test_a_download_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {"https://x/file": bytes(5000)})
    monkeypatch.setattr(files, "MOST", 4000)
    with pytest.raises(DataError, match="it has more than 4,000 bytes"):
        download("https://x/file", tmp_path / "file", "", "put it there")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, gradreg.data; print([m for m in ('PIL', 'scipy', 'matplotlib') if m in sys.modules])"
    source = Path(str(gradreg.__file__)).parents[1]
    found = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
