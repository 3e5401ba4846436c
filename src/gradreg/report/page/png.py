"""Images as PNG text for a page, written with zlib alone: Pillow is an extra."""

import base64
import struct
import zlib

import torch
from torch import Tensor

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _encode(image: Tensor) -> bytes:
    """A PNG of an image in [0, 1], channels first: three are red, green and blue; of others the mean is grey."""
    if image.shape[0] != 3:
        image = image.double().mean(0, keepdim=True)
    channels, height, width = image.shape
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).reshape(height, width * channels)
    # Each line is led by its filter, 1: bytes are differences to the pixel on the left, which compress better.
    left = torch.zeros_like(pixels)
    left[:, channels:] = pixels[:, :-channels]
    lines = torch.cat([torch.ones(height, 1, dtype=torch.uint8, device="cpu"), pixels - left], dim=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    body = zlib.compress(bytes(lines.flatten().tolist()), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(image: Tensor) -> str:
    """The PNG inside an address that a page can show without asking anybody."""
    return "data:image/png;base64," + base64.b64encode(_encode(image)).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
