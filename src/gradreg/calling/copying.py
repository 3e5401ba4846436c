"""A copy of a model that somebody else wrote."""

from copy import deepcopy
from typing import Any, TypeVar

from gradreg.calling.contents import contents
from gradreg.calling.targets import leaves
from gradreg.errors import ModelError, words_of

_Model = TypeVar("_Model")


def copy_of(model: _Model, needed: str) -> _Model:
    """A deep copy, `needed` for something, in which nothing that a forward has computed keeps its graph.

    torch copies leaves alone, but layers with weight_norm or pruning hold a computed weight, and a model may keep its
    features.
    """
    kept = [tensor for module in contents(model)[0] for value in vars(module).values() for tensor in leaves(value)]
    known: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in kept if tensor.grad_fn is not None}
    try:
        return deepcopy(model, known)
    except Exception as error:  # of somebody's class
        raise ModelError(f"The model cannot be copied, which {needed} needs: {words_of(error)}") from error
