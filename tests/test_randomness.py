"""Random streams that belong to images."""

import numpy as np
import torch

from gradreg.fingerprints import image_keys, joint_key
from gradreg.randomness import stream


def test_a_stream_is_named_by_pixels_seed_and_purpose() -> None:
    x = torch.rand(5, 1, 4, 4)
    keys = image_keys(x)
    assert torch.equal(image_keys(x.flip(0)), keys.flip(0))
    assert torch.equal(image_keys(x.double()), keys)
    assert len(set(keys.tolist())) == 5
    first = stream("a", 0, 1).standard_normal(4)
    np.testing.assert_array_equal(first, stream("a", 0, 1).standard_normal(4))
    for other in (stream("a", 0, 2), stream("a", 1, 1), stream("b", 0, 1)):
        assert not np.array_equal(first, other.standard_normal(4))
    assert joint_key([1, 2]) != joint_key([2, 1])


def test_a_stream_drawn_in_pieces_is_the_same_stream() -> None:
    """Batches cut streams anywhere, so this is what makes results independent of them."""
    whole = np.empty((10, 7), dtype=np.float32)
    stream("a", 0, 1).standard_normal(dtype=np.float32, out=whole)
    for cut in range(1, 10):
        pieces, source = np.empty((10, 7), dtype=np.float32), stream("a", 0, 1)
        source.standard_normal(dtype=np.float32, out=pieces[:cut])
        source.standard_normal(dtype=np.float32, out=pieces[cut:])
        np.testing.assert_array_equal(whole, pieces)
