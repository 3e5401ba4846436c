"""Is the model used correctly? Mistakes that make any attack meaningless before it starts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gradreg.calling.answers import leaf
from gradreg.calling.asking import named
from gradreg.calling.contents import in_train_mode
from gradreg.calling.recomputing import differentiating
from gradreg.calling.repeats import REPEATABLE, apart, in_company
from gradreg.classifier import Classifier
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import Flag, graded, make
from gradreg.errors import ModelError
from gradreg.precision import at_least_single

_RUNS = 5
# Two grey levels of 255: no data set is that dark, but images divided by 255 twice are.
_DARK = 2 / 255


def train_mode(case: Case) -> Flag:
    """Layers in train mode; all tests are made in eval mode."""
    training = case.in_train_mode
    if not training:
        return make("train-mode", "info", "No layer is in train mode.", value=0)
    finding = (
        f"{len(training)} layers are in train mode, the first a {training[0]}, so that dropout and batch statistics "
        "change the answers; the other tests were made in eval mode."
    )
    return make("train-mode", "error", finding, value=len(training), first=training[0])


@contextmanager
def eval_mode(classifier: Classifier) -> Iterator[tuple[str, ...]]:
    """In eval mode, and back, without calling `train` or `eval`, which a model may override.

    Yields the class names of the layers that were in train mode.
    """
    training = in_train_mode(classifier.model)
    for module in training:
        module.training = False
    try:
        yield tuple(type(module).__name__ for module in training)
    finally:
        for module in training:
            module.training = True


def input_range(case: Case) -> Flag:
    """Pixels outside the box, or so small that they were probably scaled twice."""
    low, high = case.classifier.box
    smallest, largest = float(case.x.min()), float(case.x.max())
    range_ = f"Pixels run from {smallest:.3g} to {largest:.3g}"
    evidence: dict[str, float] = {"smallest": smallest, "largest": largest, "low": low, "high": high}
    if not (low <= smallest and largest <= high):
        guess = ""
        if smallest >= 0 and 1 < largest <= 255:
            guess = ", which looks like 0 to 255"
        elif smallest < 0 and largest - smallest < 20:
            guess = ", which looks like normalised images"
        finding = f"{range_}, outside the box {low:g} to {high:g}{guess}."
        return make("input-range", "error", finding, **evidence)
    if largest - smallest < _DARK * (high - low):
        finding = f"{range_}, a tiny part of the box {low:g} to {high:g}: images may have been divided by 255 twice."
        return make("input-range", "warning", finding, **evidence)
    return make("input-range", "info", f"{range_}, inside the box {low:g} to {high:g}.", **evidence)


def clean_logits(classifier: Classifier, x: Tensor, batch_size: int) -> Tensor:
    """The model's logits."""
    # Of like size, since a rest of one image alone is more than some models can normalise.
    return torch.cat([classifier.ask(part) for part in x.tensor_split(-(-len(x) // batch_size))])


def not_finite(case: Case) -> Flag:
    """Images with a logit that is infinite or NaN."""
    logits = case.logits
    wrong = int((~logits.isfinite().all(1)).sum())
    finding = f"Logits of {wrong} of {len(logits)} images are not finite."
    return graded("not-finite", wrong / len(logits), finding, error=0.0, images=wrong, n=len(logits))


def clean_accuracy(case: Case) -> Flag:
    """Without a correctly classified image there is nothing to attack."""
    right, n = int(case.correct.sum()), len(case)
    finding = f"{right} of {n} images are classified correctly."
    return make("clean-accuracy", "info" if right else "error", finding, value=right / n, n=n)


def randomised(case: Case) -> Flag:
    """The logits of the same images, computed five times."""
    x, logits = case.x, case.logits
    moved, changed = 0.0, torch.zeros(len(x), dtype=torch.bool, device=logits.device)
    for _ in range(_RUNS - 1):
        again = clean_logits(case.classifier, x, case.batch_size)
        moved = max(moved, apart(logits, again))
        changed |= again.argmax(1) != logits.argmax(1)
    finding = (
        f"Asked {_RUNS} times, the model moved its logits by up to {moved:.2g} of their range and its answer on "
        f"{int(changed.sum())} of {len(x)} images."
    )
    return graded("randomised", moved, finding, error=REPEATABLE, changed=int(changed.sum()), n=len(x), runs=_RUNS)


def batch_dependent(case: Case) -> Flag:
    """The logits of a few images, computed again with other images in the batch."""
    pairs = in_company(case.classifier.ask, case.x, case.classifier.box, case.logits)
    first, other, allowed = max(pairs, key=lambda pair: apart(*pair[:2]) / pair[2])
    moved, changed = apart(first, other), int((first.argmax(1) != other.argmax(1)).sum())
    finding = (
        f"With other images in the batch, the model moved its logits by up to {moved:.2g} of their range and its "
        f"answer on {changed} of {len(first)} images."
    )
    return graded("batch-dependent", moved, finding, error=allowed, changed=changed, n=len(first))


def probabilities(case: Case) -> Flag:
    """Rows that are nowhere negative and sum to 1, as logits never do by accident."""
    logits = case.logits
    scores = logits.to(at_least_single(logits.dtype))
    rounding = 32 * torch.finfo(logits.dtype).eps
    looks = (scores >= 0).all(1) & ((scores.sum(1) - 1).abs() < rounding)
    share = float(looks.double().mean())
    finding = f"The outputs of {int(looks.sum())} of {len(logits)} images are probabilities"
    finding += "; the other tests were made on their logarithms." if share == 1 else "."
    return graded("probabilities", share, finding, error=0.5, n=len(logits))


def optimises_inside(case: Case) -> Flag:
    """A backward pass within a forward pass: what autograd saved is read before the forward pass is over.

    A gradient-free search inside the model is not detected.
    """
    read = 0

    def unpack(saved: Tensor) -> Tensor:
        nonlocal read
        read += 1
        return saved

    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack), torch.enable_grad():
            case.classifier(leaf(case.x[: case.batch_size]))
        finding = f"A forward pass read {read} tensors that only a backward pass reads."
    except ModelError as error:
        # Of torch.func, the transforms that take gradients refuse hooks on saved tensors.
        if "saved tensor hooks" not in str(error):
            raise
        read, finding = 1, "The forward pass takes gradients with torch.func."
    return graded("optimises-inside", read, finding, error=0.0)


class _Face(nn.Module):
    """A classifier whose logits are changed by a function of them and the images, in eval mode.

    The classifier is not registered as a submodule: its own mode says nothing about the model's. The buffer carries the
    device.
    """

    def __init__(self, classifier: Classifier, change: Callable[[Tensor, Tensor], Tensor], like: Tensor) -> None:
        super().__init__()

        def answer(x: Tensor) -> Tensor:
            return change(classifier(x), x)

        self._answer = answer
        self.register_buffer("place", like.new_zeros(()))
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        return self._answer(x)


def attackable(classifier: Classifier, x: Tensor, *, log: bool) -> Classifier:
    """The same classifier in a form that attacks accept: logits, with a gradient even if it is always zero."""
    if log:
        classifier = Classifier(_Face(classifier, _logarithm, x), box=classifier.box)
    if not _reaches(classifier, x[:1]):
        classifier = Classifier(_Face(classifier, _with_a_zero_gradient, x), box=classifier.box)
    return classifier


def _logarithm(scores: Tensor, x: Tensor) -> Tensor:
    return scores.clamp(min=torch.finfo(scores.dtype).tiny).log()


def _with_a_zero_gradient(logits: Tensor, x: Tensor) -> Tensor:
    return logits + 0 * x.flatten(1).sum(1, keepdim=True)


def _reaches(classifier: Classifier, x: Tensor) -> bool:
    """Whether autograd connects the logits with the images."""
    with torch.enable_grad():
        point = leaf(x)
        total = classifier(point).sum()
        with named(x), differentiating():
            return total.requires_grad and torch.autograd.grad(total, point, allow_unused=True)[0] is not None
