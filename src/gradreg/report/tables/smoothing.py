"""How sure the smoothed classifiers are: the distribution of p_A, which depends on neither n nor α."""

from gradreg.evaluation.record import Evaluation, Smoothed
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables.cells import share
from gradreg.report.tables.layout import NOTHING, Cell, Column, Row, Table

_LEVELS = (0.5, 0.75, 0.9, 0.99, 0.999)


def class_frequencies(comparison: Comparison) -> Table:
    """The share of images at or above each frequency, right class only."""
    found = [
        (evaluation, smoothed)
        for evaluation in comparison.evaluations
        for smoothed in evaluation.smoothing
        if smoothed.seen is not None
    ]
    rows = [
        Row(
            f"{evaluation.subject.name}, σ = {smoothed.sigma:g}",
            tuple(_sure(evaluation, smoothed, level) for level in _LEVELS),
            models=(evaluation.subject.name,),
        )
        for evaluation, smoothed in found
    ]
    return Table(
        "class-frequencies",
        "Class frequencies under noise",
        "Fraction of images whose right class the network gives to noisy copies at least so often (p_A, estimated by "
        f"the samples drawn), over {images(len(each) for each, _ in found)}. Unlike a mean radius this does not grow "
        "with the number of samples, and easy images cannot make up for the others.",
        tuple(
            Column(f"p_A ≥ {level:g}", f"Right class in at least {level:g} of noisy copies.", "high")
            for level in _LEVELS
        ),
        tuple(rows),
    )


def _sure(evaluation: Evaluation, smoothed: Smoothed, level: float) -> Cell:
    sure = evaluation.sure(smoothed, level)
    return NOTHING if sure is None else share(sure)
