"""What somebody sees who asks a model about one image, without anything of gradreg."""

from typing import Any

import torch
from torch import Tensor, nn


def asked_alone(model: Any, image: Tensor) -> Tensor:
    """The logits of a batch of one, in the dtype of the weights."""
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    x = image[None].clone()
    if len({parameter.dtype for parameter in parameters}) == 1:
        x = x.to(parameters[0].dtype)
    with torch.no_grad():
        returned = model(x)
    logits: Tensor = returned["logits"] if isinstance(returned, dict) else returned
    return logits[0]


def is_error(logits: Tensor, label: int) -> bool:
    """Whether the label is not strictly ahead."""
    rivals = torch.cat([logits[:label], logits[label + 1 :]])
    return bool(rivals.max() >= logits[label])
