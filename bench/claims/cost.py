"""Claims on cost: by time as a ratio within one run, by count where that is exact."""

from functools import partial

import torch

from bench import measure
from bench.claims.claim import Finding, holds
from bench.options import ClaimOptions
from bench.training import SHAPES, penalised_step, plain_step
from gradreg.bounds import Regularity, bounds
from gradreg.classifier import Classifier
from gradreg.data import load
from gradreg.models import build


def faster_on_digits(options: ClaimOptions) -> Finding:
    """Squared penalty: one step by double backprop over one by finite differences."""
    return _faster("small", 1.05, options)


def faster_on_photographs(options: ClaimOptions) -> Finding:
    """As above, on the compact CIFAR-10 network."""
    return _faster("compact", 1.25, options)


def _faster(name: str, least: float, options: ClaimOptions) -> Finding:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = build(name, classes=10)
        x, y = torch.rand(64, *SHAPES[name]), torch.randint(0, 10, (64,))
    steps = {
        "plain": plain_step(model, x, y),
        "fd": penalised_step(model, x, y, lam=0.1),
        "double": penalised_step(model, x, y, lam=0.1, method="double-backprop"),
    }
    times = measure.seconds(steps, options.rounds)
    finite, double = times["fd"] / times["plain"], times["double"] / times["plain"]
    measured = (
        f"{name} network, batch 64, one thread, best of {options.rounds}, interleaved: double backprop takes "
        f"{double / finite:.2f} times as long ({finite:.2f}× and {double:.2f}× a plain step)."
    )
    return Finding(measured, holds(double / finite >= least))


def half_more_on_imagenet(options: ClaimOptions) -> Finding:
    """Counted operations of a ResNet-50; the hours are the paper's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        model = build("resnet50", classes=1000)
        x, y = torch.rand(2, 3, 64, 64), torch.tensor([1, 2])
    plain, penalised = (measure.flops(step(model, x, y)) for step in (plain_step, partial(penalised_step, lam=0.1)))
    measured = (
        f"Counted on a ResNet-50: {penalised / plain:.2f} times the operations of a plain step. The paper's hours "
        "are 20.30 and 33.87, 1.67 times."
    )
    return Finding(measured, "only there")


def one_gradient_per_bound(options: ClaimOptions) -> Finding:
    """The propagations of `bounds` on fresh images, once L and ω are known."""
    digits = load("mnist5k")
    x, y = digits.test.floats(slice(8)), digits.test.labels[:8]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        classifier = Classifier(build("small", classes=10).eval())
    known = Regularity("l2", "given", torch.tensor(1.0), torch.tensor([1.0]), torch.zeros(1))
    with classifier.counted(len(x)) as queries:
        bounds(classifier, x, y, known)
    forwards, backwards = int(queries.forwards.max()), int(queries.backwards.max())
    measured = f"Counted: {forwards} forward and {backwards} backward per image (n = {len(x)})."
    return Finding(measured, holds((forwards, backwards) == (1, 1)))
