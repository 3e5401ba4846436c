"""The wheel and the archive of sources: what is in them, and how large they are."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from gradreg.data import mnist5k
from gradreg.runs import networks, recipes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "gradreg"
MOST = 15 * 10**6
_BUILD = "import hatchling.build as b, sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the archive, by the build backend that pip would call; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("built")

    def build(kind: str) -> Path:
        command = [sys.executable, "-c", _BUILD, f"build_{kind}", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return folder / done.stdout.splitlines()[-1]

    return build("wheel"), build("sdist")


def needed() -> set[str]:
    """Files without which an installed gradreg would not do what its documents say, as paths in the package."""
    files = {path for suffix in (".py", ".pyi", ".toml") for path in PACKAGE.rglob(f"*{suffix}")}
    files |= {networks.home() / name / file for name in networks.names() for file in networks.FILES}
    files |= {*mnist5k.HOME.iterdir(), PACKAGE / "py.typed", *(PACKAGE / "report/page/assets").iterdir()}
    return {path.relative_to(PACKAGE).as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_wheel_is_complete_and_small(built: tuple[Path, Path]) -> None:
    wheel = built[0]
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix("gradreg/") for name in archive.namelist() if ".dist-info/" not in name}
        licences = {Path(name).name for name in archive.namelist() if ".dist-info/licenses/" in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        facts = Parser().parsestr(archive.read(metadata).decode())
    assert needed() <= names
    assert not {name for name in names if name.startswith(("tests", "results", "docs", "bench"))}
    assert {"LICENSE", "NOTICE.md"} <= licences
    assert facts["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    assert wheel.stat().st_size < MOST
    assert len(networks.names()) >= 2
    assert "mnist5k-l2" in recipes.names()


def test_the_archive_of_sources_has_the_package_and_not_the_results(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {"/".join(Path(member.name).parts[1:]) for member in archive.getmembers()}
    assert {f"src/gradreg/{name}" for name in needed()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "CHANGELOG.md"} <= names
    assert not {name for name in names if name.startswith(("tests", "results", "docs", "bench"))}
    assert built[1].stat().st_size <= MOST


def test_a_wheel_of_the_archive_is_the_wheel_of_the_checkout(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    command = [sys.executable, "-c", _BUILD, "build_wheel", str(tmp_path)]
    again = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    with zipfile.ZipFile(tmp_path / again) as second, zipfile.ZipFile(built[0]) as first:
        assert {file.filename: file.CRC for file in first.infolist()} == {
            file.filename: file.CRC for file in second.infolist()
        }


def test_the_wheel_works_by_itself(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Unpacked elsewhere, as an installer would, it passes its own checks and finds its recipes and networks."""
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(tmp_path / "there")
    code = (
        "import gradreg, sys\nfrom gradreg.runs import networks, recipes\nfrom gradreg.cli import main\n"
        "print(gradreg.__path__[0], len(recipes.names()), *networks.names())\n"
        "gradreg.load(networks.names()[0])\nmain(['doctor', '--device', 'cpu'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout.splitlines()[0].split()
    assert first == [str(tmp_path / "there" / "gradreg"), str(len(recipes.names())), *networks.names()]
