"""What the host learns of a device: each look makes an accelerator wait, so what is wanted together is one copy."""

import torch
from torch import Tensor


def fetched(*tensors: Tensor) -> list[Tensor]:
    """The tensors on the host, by one look at their device; those of the host are returned unchanged."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return list(tensors)
    flat = [tensor.detach().resolve_neg().contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    parts = torch.cat(flat).cpu().split([len(part) for part in flat])
    # A view of numbers must begin where their size divides the address, so each part gets memory of its own.
    return [part.clone().view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def rows_of(mask: Tensor, count: int) -> Tensor:
    """Where the mask is true, in order, without a look: `count` says how often that is."""
    return mask.logical_not().to(torch.uint8).argsort(stable=True)[:count]
