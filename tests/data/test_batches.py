from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from same_batches import assert_same
from torch import Tensor

from gradreg.data import Batches, FolderBatches, ImageFolder, Images, batches
from gradreg.errors import ConfigError

AUGMENT = ("crop", "flip", {"name": "cutout", "size": 4})


@pytest.fixture(scope="module")
def images() -> Images:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (50, 3, 8, 8), generator=generator).to(torch.uint8)
    return Images(pixels, torch.arange(50) % 5, tuple("abcde"))


def collect(loader: Batches) -> list[tuple[Tensor, Tensor]]:
    return list(loader)


def test_without_options_the_images_come_in_order(images: Images) -> None:
    loader = Batches(images, 16)
    assert [len(y) for _, y in loader] == [16, 16, 16, 2]
    assert len(loader) == 4
    assert torch.equal(torch.cat([x for x, _ in loader]), images.floats())
    assert torch.equal(torch.cat([y for _, y in loader]), images.labels)


def test_shuffled_every_image_comes_once_and_epochs_differ(images: Images) -> None:
    loader = Batches(images, 16, shuffle=True, seed=3)
    orders = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        rows = torch.cat([x for x, _ in loader]).flatten(1)
        assert sorted(rows.tolist()) == sorted(images.floats().flatten(1).tolist())
        orders.append(rows)
    assert not torch.equal(*orders)


def test_the_last_batch_is_dropped_on_request(images: Images) -> None:
    loader = Batches(images, 16, drop_last=True)
    assert [len(y) for _, y in loader] == [16, 16, 16]
    assert len(loader) == 3


def test_equal_seeds_give_equal_batches_and_others_do_not(images: Images) -> None:
    def run(seed: int) -> list[tuple[Tensor, Tensor]]:
        return collect(Batches(images, 16, shuffle=True, seed=seed, augment=AUGMENT))

    assert_same(run(7), run(7))
    assert not torch.equal(run(7)[0][0], run(8)[0][0])


def test_augmentation_differs_between_epochs_and_batches(images: Images) -> None:
    repeated = images.subset(torch.zeros(48, dtype=torch.int64))  # one image, so only augmentation tells them apart
    loader = Batches(repeated, 24, augment=AUGMENT)
    first, second = (x for x, _ in loader)
    loader.set_epoch(1)
    assert not torch.equal(first, second)
    assert not torch.equal(first, next(iter(loader))[0])


@pytest.mark.parametrize("first", [0, 1, 3, 4])
def test_a_run_resumes_in_the_middle_of_an_epoch(images: Images, first: int) -> None:
    def fresh() -> Batches:
        loader = Batches(images, 16, shuffle=True, seed=7, augment=AUGMENT)
        loader.set_epoch(5)
        return loader

    resumed = fresh()
    resumed.start(first)
    assert_same(collect(fresh())[first:], collect(resumed))
    assert len(resumed) == 4
    resumed.set_epoch(5)
    assert_same(collect(fresh()), collect(resumed))


@pytest.mark.parametrize(("world", "batch_size"), [(1, 12), (2, 6), (3, 4)])
@pytest.mark.parametrize("drop_last", [True, False])
def test_processes_together_see_the_batches_of_one(
    images: Images, world: int, batch_size: int, drop_last: bool
) -> None:
    options = {"shuffle": True, "seed": 2, "augment": AUGMENT, "drop_last": drop_last}
    one = list(batches(images, 12, **options))
    ranks = [list(batches(images, batch_size, rank=r, world=world, **options)) for r in range(world)]
    assert [len(rank) for rank in ranks] == [len(one)] * world
    joint = [(torch.cat(x), torch.cat(y)) for x, y in (zip(*parts, strict=True) for parts in zip(*ranks, strict=True))]
    assert_same(one, joint)


def test_no_global_generator_is_touched(images: Images) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    collect(Batches(images, 16, shuffle=True, augment=AUGMENT))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # type: ignore[index]


def test_layout_and_device(images: Images) -> None:
    x, y = next(iter(Batches(images, 8, channels_last=True, device="cpu")))
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(x, images.floats(slice(8)))


def test_the_kind_of_batches_follows_the_kind_of_images(images: Images) -> None:
    assert isinstance(batches(images, 4), Batches)
    folder = ImageFolder(("a.png",), torch.zeros(1).long(), ("a",), "toy")
    assert isinstance(batches(folder, 1), FolderBatches)


def test_senseless_set_ups_are_refused(images: Images) -> None:
    with pytest.raises(ConfigError, match="batch_size must be at least 1; got 0"):
        Batches(images, 0)
    with pytest.raises(ConfigError, match="rank must lie between 0 and 1 for 2 processes; got 2"):
        Batches(images, 4, rank=2, world=2)
    with pytest.raises(ConfigError, match="50 images do not fill one batch of 60"):
        Batches(images, 30, world=2, drop_last=True)
    with pytest.raises(ConfigError, match="batch_index must be from 0 to 4; got 5"):
        Batches(images, 16).start(5)
