"""The tour: the same network trained plainly and with the penalty, on real digits, in under a minute."""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

from gradreg.attacks import attack
from gradreg.classifier import Classifier
from gradreg.data import Batches, Images, load
from gradreg.digits import EPS, fresh_model, steps_of_training
from gradreg.losses import cross_entropy
from gradreg.norms import threat

# Test images that are attacked; the attack takes a few seconds for these.
ATTACKED = 200


@dataclass(frozen=True)
class Trained:
    """How a network did on the test images, and what its training cost."""

    name: str
    accuracy: float
    grad_norm: float
    distance: float
    """Mean l2 distance of the nearest adversarial image found, misclassified images counting 0."""
    seconds: float


def demo(epochs: int, seed: int, data_dir: Path | None, console: Console) -> list[Trained]:
    """Train the small network on mnist5k twice, plainly and regularised, and print both side by side."""
    digits = load("mnist5k", data_dir)
    assert isinstance(digits.train, Images)
    assert isinstance(digits.test, Images)
    models = {"undefended": fresh_model(seed), "regularised": fresh_model(seed)}
    strengths = {"undefended": 0.0, "regularised": EPS}
    batches = {name: Batches(digits.train, 64, shuffle=True, seed=seed, drop_last=True) for name in models}
    runs = {name: steps_of_training(model, batches[name], strengths[name], epochs) for name, model in models.items()}
    steps = epochs * len(batches["undefended"])
    seconds = dict.fromkeys(models, 0.0)
    columns = TextColumn("training both"), BarColumn(), TextColumn("{task.fields[losses]}"), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=steps, losses="")
        for _ in range(steps):
            losses = []
            # In turn, step by step: what else the machine does then slows both alike, and the ratio means something.
            for name, run in runs.items():
                start = perf_counter()
                losses.append(f"{name} {next(run):.3f}")
                seconds[name] += perf_counter() - start
            progress.update(bar, advance=1, losses="loss: " + ", ".join(losses))
    results = [_examine(name, model.eval(), digits.test, seconds[name]) for name, model in models.items()]
    console.print(_table(results, len(digits.test), epochs, seed))
    plain, robust = results
    flatter, further = plain.grad_norm / robust.grad_norm, robust.distance / plain.distance
    console.print(
        f"* l2 distance of the nearest adversarial image, quick attack, first {ATTACKED} test images\n\n"
        f"The penalty made the loss {flatter:.1f} times flatter and pushed adversarial images {further:.1f} times "
        f"further away, for {robust.seconds / plain.seconds:.1f} times the training time."
    )
    return results


def _examine(name: str, model: nn.Module, test: Images, seconds: float) -> Trained:
    classifier = Classifier(model)
    x, y = test.floats(), test.labels
    correct = (classifier.check(x, y).argmax(1) == y).float().mean()
    _, gradient = classifier.loss_and_gradient(x, y, cross_entropy)
    norms = threat("l2").dual_norm(gradient)
    found = attack(model, x[:ATTACKED], y[:ATTACKED], threat="l2", attacks="quick")
    return Trained(name, correct.item(), norms.mean().item(), found.distance.mean().item(), seconds)


def _table(results: list[Trained], images: int, epochs: int, seed: int) -> Table:
    table = Table(title=f"small network, mnist5k, {epochs} epochs, seed {seed}, {images} test images", title_style="")
    for column in ("", "clean accuracy", "mean ‖∇ℓ‖₂", "mean distance*", "training"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in results:
        table.add_row(
            row.name, f"{row.accuracy:.1%}", f"{row.grad_norm:.3f}", f"{row.distance:.2f}", f"{row.seconds:.1f} s"
        )
    return table
