from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from same_batches import assert_same
from torch import Tensor

from gradreg.data import FolderBatches, ImageFolder, load
from gradreg.data.decode import Decoder, _central_view, _random_box, _random_view
from gradreg.errors import ConfigError, DataError

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),  # Python 3.12, fork
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a machine with one core
]


def picture(width: int, height: int, shift: int = 0) -> PIL.Image.Image:
    """Smooth, so that JPEG and resizing change it little."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    channels = [x, y, (x + y) / 2]
    return PIL.Image.fromarray(np.stack([(255 * c + shift) % 256 for c in channels], 2).astype(np.uint8))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folder")
    for part, n in (("train", 5), ("val", 2)):
        for label, name in enumerate(("cat", "dog")):
            place = root / part / name
            place.mkdir(parents=True)
            for i in range(n):
                picture(60 + 10 * i, 50 + 7 * label, 20 * i).save(place / f"{i}.{'jpg' if i % 2 else 'png'}")
            (place / "notes.txt").write_text("not an image")
            (place / ".hidden.png").write_text("not an image")
    return root


def part(root: Path, name: str = "train") -> ImageFolder:
    data = load(f"folder:{root}")
    found = data.train if name == "train" else data.test
    assert isinstance(found, ImageFolder)
    return found


def run(root: Path, epoch: int = 0, **options: object) -> list[tuple[Tensor, Tensor]]:
    settings = {"seed": 1, "augment": ("crop", "flip"), "size": 16, "workers": 0, "shuffle": True} | options
    loader = FolderBatches(part(root), 4, **settings)  # type: ignore[arg-type]
    loader.set_epoch(epoch)
    return list(loader)


def test_listing_is_sorted_and_leaves_out_what_is_no_image(root: Path) -> None:
    train = part(root)
    assert train.classes == ("cat", "dog")
    assert train.labels.tolist() == [0] * 5 + [1] * 5
    assert [Path(path).name for path in train.paths[:5]] == ["0.png", "1.jpg", "2.png", "3.jpg", "4.png"]
    assert len(part(root, "val")) == 4


def test_test_serves_when_there_is_no_val(root: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(root / "train")
    (tmp_path / "test").symlink_to(root / "val")
    assert len(part(tmp_path, "test")) == 4


def test_batches_do_not_depend_on_the_number_of_workers(root: Path) -> None:
    before = torch.get_rng_state(), random.getstate()
    alone = run(root, epoch=3)
    assert_same(alone, run(root, epoch=3, workers=2))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert [x.shape for x, _ in alone] == [(4, 3, 16, 16), (4, 3, 16, 16), (2, 3, 16, 16)]
    assert alone[0][0].dtype == torch.float32
    assert 0 <= alone[0][0].min() < alone[0][0].max() <= 1


def test_a_view_depends_on_seed_epoch_and_image_alone(root: Path) -> None:
    """In order or shuffled, in one process or three, an image looks the same within an epoch."""

    def views(**options: object) -> set[bytes]:
        return {image.numpy().tobytes() for x, _ in run(root, **options) for image in x}  # type: ignore[arg-type]

    usual = views()
    assert len(usual) == 10
    assert views(shuffle=False) == usual
    assert set.union(*(views(rank=rank, world=3) for rank in range(3))) == usual
    assert not usual & views(epoch=1)
    assert not usual & views(seed=2)


def test_processes_together_see_the_batches_of_one(root: Path) -> None:
    options = {"shuffle": True, "size": 8, "workers": 0, "augment": ("crop", "flip")}
    one = list(FolderBatches(part(root), 6, **options))  # type: ignore[arg-type]
    ranks = [list(FolderBatches(part(root), 2, rank=r, world=3, **options)) for r in range(3)]  # type: ignore[arg-type]
    joint = [(torch.cat(x), torch.cat(y)) for x, y in (zip(*parts, strict=True) for parts in zip(*ranks, strict=True))]
    assert_same(one, joint)


def test_a_run_resumes_in_the_middle_of_an_epoch(root: Path) -> None:
    loader = FolderBatches(part(root), 4, shuffle=True, augment=("crop",), size=16, workers=0)
    loader.set_epoch(2)
    whole = list(loader)
    loader.start(1)
    assert_same(whole[1:], list(loader))
    assert len(loader) == 3


def test_an_iteration_can_be_abandoned(root: Path) -> None:
    loader = FolderBatches(part(root), 2, size=16, workers=2)
    first = next(iter(loader))
    assert_same([first], [next(iter(loader))])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_outlive_signals_that_go_to_their_whole_group(root: Path, number: signal.Signals) -> None:
    """The process that saves on such a signal would else fail for want of its next batch."""
    whole = run(root)
    loader = FolderBatches(part(root), 1, seed=1, augment=("crop", "flip"), size=16, workers=1, shuffle=True)
    found: list[tuple[Tensor, Tensor]] = []
    for batch in loader:
        if not found:
            (worker,) = active_children()
            assert worker.pid is not None
            os.kill(worker.pid, number)
        found.append(batch)
        time.sleep(0.02)
    assert torch.equal(torch.cat([x for x, _ in found]), torch.cat([x for x, _ in whole]))


@pytest.mark.parametrize(("width", "height"), [(200, 120), (120, 200), (90, 90), (20, 30)])
def test_evaluation_resizes_and_cuts_the_centre(tmp_path: Path, width: int, height: int) -> None:
    path = tmp_path / "image.jpg"
    picture(width, height).save(path)
    size, short = 50, 57
    with PIL.Image.open(path) as image:
        target = (short, round(short * height / width)) if width < height else (round(short * width / height), short)
        resized = image.resize(target, PIL.Image.Resampling.BILINEAR)
    left, top = (target[0] - size) // 2, (target[1] - size) // 2
    expected = np.asarray(resized.crop((left, top, left + size, top + size)))
    folder = ImageFolder((str(path),), torch.zeros(1).long(), ("a",), "toy", size=size)
    ((pixels, _),) = FolderBatches(folder, 1, workers=0)
    assert torch.equal(pixels.mul(255).round().to(torch.uint8)[0], torch.tensor(expected).permute(2, 0, 1))
    assert torch.equal(folder.floats(), pixels)


def test_a_random_view_is_its_box_resized(tmp_path: Path) -> None:
    """Exact without draft (PNG); with it (JPEG) the same up to what decoding at a smaller scale costs."""
    original = picture(640, 480)
    box = _random_box(640, 480, 0.25, random.Random(4))
    expected = np.asarray(original.resize((32, 32), PIL.Image.Resampling.BILINEAR, box=box)).astype(int)
    for name, tolerance in (("image.png", 0), ("image.jpg", 6)):
        original.save(tmp_path / name)
        with PIL.Image.open(tmp_path / name) as image:
            view = np.asarray(_random_view(image, 32, 0.25, random.Random(4))).astype(int)
        assert np.abs(view - expected).max() <= tolerance


@pytest.mark.parametrize(("width", "height"), [(100, 80), (1, 1), (1000, 10), (10, 1000)])
def test_random_boxes_stay_inside_and_have_the_right_shape(width: int, height: int) -> None:
    dice = random.Random(0)
    for _ in range(200):
        left, top, right, bottom = _random_box(width, height, 0.3, dice)
        assert 0 <= left < right <= width + 1e-9
        assert 0 <= top < bottom <= height + 1e-9
        assert 0.75 - 1e-9 <= (right - left) / (bottom - top) <= 4 / 3 + 1e-9


def test_flips_mirror_about_half_of_the_images(root: Path) -> None:
    path = part(root).paths[0]
    plain = np.asarray(Decoder(16).view(path, 0))
    flips = 0
    for position in range(100):
        view = np.asarray(Decoder(16, flip=True).view(path, position))
        flipped = np.array_equal(view, plain[:, ::-1])
        assert flipped or np.array_equal(view, plain)
        flips += flipped
    assert 30 < flips < 70


@pytest.mark.parametrize("mode", ["L", "LA", "P", "PA", "RGBA", "CMYK", "1", "P with transparency", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = picture(40, 40).convert("L")
    if mode == "I;16":
        image = PIL.Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    elif mode == "P with transparency":
        image = grey.convert("P")
        image.info["transparency"] = bytes(range(256))
    else:
        image = grey.convert("LA").convert("PA") if mode == "PA" else grey.convert(mode)
    path = tmp_path / {"CMYK": "image.jpg", "PA": "image.tif", "LA": "image.png"}.get(mode, "image.png")
    image.save(path)
    pixels = np.asarray(Decoder(20).view(str(path), 0)).astype(int)
    expected = np.asarray(_central_view(grey.convert("RGB"), 20, 20)).astype(int)
    assert pixels.shape == (20, 20, 3)
    assert np.abs(pixels - expected).max() <= {"1": 255, "CMYK": 8}.get(mode, 1)


def test_pixels_without_a_known_range_are_refused(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.ones((9, 9), np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(DataError, match=r"f\.tif cannot be decoded .*mode F"):
        Decoder(4).view(str(tmp_path / "f.tif"), 0)


def folder_with(root: Path, **files: bytes) -> Path:
    for part_name in ("train", "val"):
        for name, content in files.items():
            (root / part_name / name).mkdir(parents=True)
            (root / part_name / name / "x.jpg").write_bytes(content)
    return root


def jpeg(tmp_path: Path) -> bytes:
    picture(30, 30).save(tmp_path / "sound.jpg")
    return (tmp_path / "sound.jpg").read_bytes()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["text", "cut", "empty"])
def test_an_undecodable_file_is_named_in_one_sentence(tmp_path: Path, kind: str, workers: int) -> None:
    sound = jpeg(tmp_path)
    content = {"text": b"hello", "cut": sound[: len(sound) // 2], "empty": b""}[kind]
    folder = part(folder_with(tmp_path / "data", good=sound, wrong=content))
    with pytest.raises(DataError, match=r"train/wrong/x\.jpg cannot be decoded as an image") as caught:
        list(FolderBatches(folder, 2, size=8, workers=workers))
    assert "Traceback" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be decoded"):
        folder.floats()


def test_wrong_layouts_are_named(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(DataError, match=message):
            load(f"folder:{tmp_path / 'data'}")

    refused("data does not exist")
    (tmp_path / "data" / "train").mkdir(parents=True)
    refused(r"must hold train/ and val/ \(or test/\)")
    (tmp_path / "data" / "val").mkdir()
    refused("train has no class folders")
    (tmp_path / "data" / "train" / "cat").mkdir()
    refused(r"class folder .*train/cat holds no images")
    for place in ("train/cat", "val/cat", "val/dog"):
        (tmp_path / "data" / place).mkdir(exist_ok=True)
        (tmp_path / "data" / place / "x.jpg").write_bytes(b"")
    refused(r"differ: 'dog' is in val/ only \(1 such\)")


def test_subset_and_split(root: Path) -> None:
    train = part(root)
    chosen = train.subset([7, 2])
    assert chosen.paths == (train.paths[7], train.paths[2])
    assert chosen.labels.tolist() == [1, 0]
    kept, held = train.split(3, seed=0)
    assert sorted(kept.paths + held.paths) == sorted(train.paths)
    assert len(held) == 3


def test_senseless_set_ups_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="must be 'crop' or 'flip'; got 'cutout'"):
        FolderBatches(part(root), 2, augment=("cutout",))
    with pytest.raises(ConfigError, match=r"min_scale must be above 0 and at most 1 .*; got 0"):
        FolderBatches(part(root), 2, min_scale=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install pillow"):
        FolderBatches(part(root), 2)
