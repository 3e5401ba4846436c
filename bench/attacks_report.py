"""What `python -m bench attacks` found, as tables and against what was promised."""

from dataclasses import dataclass, replace

from rich.table import Table

from bench.attacks import Equal, RadiusRow, Row
from bench.record import Target, plain_table

# A 90th percentile of fewer images says nothing.
_ENOUGH = 50


@dataclass(frozen=True)
class Report:
    """All rows, in the order they are shown."""

    rows: list[Row]
    radius_rows: list[RadiusRow]
    equal: list[Equal]
    images: int

    def targets(self) -> list[Target]:
        """What this command has to show, and whether it does."""
        groups = list(dict.fromkeys((row.network, row.threat) for row in self.rows))
        return [_judged(target, self.images) for group in groups for target in self._of(*group)]

    def _of(self, network: str, threat: str) -> list[Target]:
        where = f"{network}, {threat}: "
        rows = {row.attack: row for row in self.rows if (row.network, row.threat) == (network, threat)}
        fixed = {row.attack: row for row in self.radius_rows if (row.network, row.threat) == (network, threat)}
        ours = rows["standard"]
        assert ours.median is not None
        assert ours.p90 is not None
        assert ours.most is not None
        targets = [
            Target(f"{where}standard, median ≤ 1.005", f"{ours.median:.4f}", ours.median <= 1.005),
            Target(f"{where}standard, p90 ≤ 1.03", f"{ours.p90:.4f}", ours.p90 <= 1.03),
            Target(f"{where}standard, ≤ 1,000 propagations per image", f"{ours.most:,}", ours.most <= 1000),
        ]
        if threat == "l2":
            targets.append(_fifth(where, ours, rows))
        targets += _robustness(where, fixed)
        for equal in self.equal if threat == "l2" else []:
            if equal.network == network:
                name = f"{where}{equal.attack} beside foolbox's, "
                targets.append(Target(f"{name}distance ≤ 1×", f"{equal.distance:.3f}×", equal.distance <= 1))
                targets.append(Target(f"{name}≥ 3× faster", f"{1 / equal.cpu:.2f}×", equal.cpu <= 1 / 3))
        return targets


def _judged(target: Target, images: int) -> Target:
    """Whether a target is met, left open on too few images."""
    if images >= _ENOUGH:
        return target
    return replace(target, found=f"{target.found} (n = {images}; judged from {_ENOUGH} on)", met=None)


def _fifth(where: str, ours: Row, rows: dict[str, Row]) -> Target:
    """Foolbox's suite is its Carlini-Wagner and Boundary together."""
    promise = f"{where}standard, ≤ a fifth of the seconds of foolbox C&W and Boundary"
    parts = [row.cpu for name, row in rows.items() if name.startswith(("foolbox C&W", "foolbox Boundary"))]
    seconds = [part for part in parts if part is not None]
    if ours.cpu is None or len(seconds) < 2:
        return Target(promise, "foolbox did not run", None)
    return Target(promise, f"1/{sum(seconds) / ours.cpu:.1f}", 5 * ours.cpu <= sum(seconds))


def _robustness(where: str, fixed: dict[str, RadiusRow]) -> list[Target]:
    ours, theirs = fixed["standard"], fixed.get("autoattack standard")
    promises = (
        f"{where}standard at the radius, robust accuracy ≤ AutoAttack's",
        f"{where}standard at the radius, ≤ half of AutoAttack's propagations",
    )
    if theirs is None or theirs.note or theirs.robust is None or ours.robust is None:
        return [Target(promise, "AutoAttack did not run", None) for promise in promises]
    assert ours.propagations is not None
    assert theirs.propagations is not None
    share = ours.propagations / theirs.propagations
    return [
        Target(promises[0], f"{ours.robust:.1%} and {theirs.robust:.1%}", ours.robust <= theirs.robust),
        Target(promises[1], f"{share:.3f}×", share <= 0.5),
    ]


def distance_table(rows: list[Row], title: str) -> Table:
    """Ratios are to the image's best of all runs."""
    headings = ("attack", "median", "p90", "mean", "success", "forwards", "backwards", "CPU s", "s")
    table = plain_table(title, headings, left=1)
    for row in rows:
        if row.median is None:
            table.add_row(row.attack, row.note)
            continue
        shown = [_number(value, ".4f") for value in (row.median, row.p90, row.mean)] + [_number(row.success, ".0%")]
        shown += [_number(value, ",.0f") for value in (row.forwards, row.backwards)]
        table.add_row(_named(row), *shown, *(_number(value, ".1f") for value in (row.cpu, row.wall)))
    return table


def radius_table(rows: list[RadiusRow], title: str) -> Table:
    """Propagations are means over all images, those that were broken at once among them."""
    headings = ("network", "threat", "radius", "attack", "robust", "forwards", "backwards", "CPU s", "s")
    table = plain_table(title, headings, left=4)
    for row in rows:
        name = (row.network, row.threat, f"{row.eps:.4g}", row.attack if row.robust is None else _named(row))
        counts = [_number(value, ",.0f") for value in (row.forwards, row.backwards)]
        seconds = [_number(value, ".1f") for value in (row.cpu, row.wall)]
        shown = [row.note] if row.robust is None else [_number(row.robust, ".1%"), *counts, *seconds]
        table.add_row(*name, *shown)
    return table


def equal_table(rows: list[Equal]) -> Table:
    """Ours over foolbox's; below 1 is better everywhere."""
    headings = ("network", "attack", "distance", "propagations", "CPU s", "s")
    table = plain_table("ours over foolbox's at equal settings, l2", headings, left=2)
    for row in rows:
        shown = (row.distance, row.propagations, row.cpu, row.wall)
        table.add_row(row.network, row.attack, *(f"{value:.3f}×" for value in shown))
    return table


def _named(row: Row | RadiusRow) -> str:
    return f"{row.attack} ({row.note})" if row.note else row.attack


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"
