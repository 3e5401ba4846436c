"""Runs of one recipe side by side: how far the seed alone moves an accuracy."""

from statistics import mean

from gradreg.config.fractions import radius_name
from gradreg.display import charts as axes
from gradreg.display.charts import Chart, Series
from gradreg.display.numbers import percent
from gradreg.evaluation.shares import top_k
from gradreg.report.comparison import Comparison
from gradreg.report.tables.seeds import measures, repeated

_LONGEST = 20


def spreads(comparison: Comparison) -> list[Chart]:
    """Clean accuracy, and robust accuracy at the radius that models are compared at; none without repeated recipes."""
    main = {
        (threat, f"{comparison.symbol(threat)} at {radius_name(comparison.main_radius(threat))}")
        for threat in comparison.threats
    }
    shown = [key for key in measures(comparison) if key in {("", "clean"), *main}]
    return [chart for key in shown if (chart := _spread(comparison, key)) is not None]


def _spread(comparison: Comparison, key: tuple[str, str]) -> Chart | None:
    """A line from the lowest run to the highest with an upright at their mean, and a hollow mark for each run."""
    threat, name = key
    measure = measures(comparison)[key]
    found = [
        (
            recipe.name,
            [(each.subject.name, value) for each in recipe.evaluations if (value := measure(each)) is not None],
        )
        for recipe in repeated(comparison)
    ]
    found = [(recipe, runs) for recipe, runs in found if runs]
    if not found:
        return None
    series, words, values = [], [], [value for _, runs in found for _, value in runs]
    for place, (recipe, runs) in enumerate(found):
        each = [value for _, value in runs]
        centre = mean(each)
        series += [
            Series("", [min(each), max(each)], [place, place], "line", silent=True),
            Series("", [centre, centre], [place - 0.3, place + 0.3], "line", silent=True),
            *(
                Series(model, [value], [place], "marks", comparison.names.index(model), "hollow")
                for model, value in runs
            ),
        ]
        words.append(f"{recipe}: {percent(centre)}, from {percent(min(each))} to {percent(max(each))}.")
    what = "clean accuracy" if not threat else f"robust accuracy, {name}"
    room = 0.08 * (max(values) - min(values))
    names = [recipe if len(recipe) <= _LONGEST else f"{recipe[: _LONGEST - 1]}…" for recipe, _ in found]
    return Chart(
        top_k(what, comparison.topk),
        axes.fractions(top_k("accuracy", comparison.topk), max(0.0, min(values) - room), min(1.0, max(values) + room)),
        axes.categories(names),
        tuple(series),
        " ".join(words),
        height=34.0 * len(found) + 60,
        threat=threat,
    )
