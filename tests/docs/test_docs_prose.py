"""Numbers in prose are those of results/: in docs/results.md, in README and in the command of docs/attacks.md."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from docs.make.benches import read
from gradreg.evaluation import Evaluation, load
from gradreg.reading import read_json
from gradreg.report.comparison import Comparison
from gradreg.report.tables.contrast import contrast
from gradreg.report.tables.layout import Cell
from gradreg.report.writing import compare

ROOT = Path(__file__).parents[2]
FOLDERS = [*(ROOT / "results" / "cifar10").iterdir(), *(ROOT / "results" / "fashion-mnist").iterdir()]
FOLDERS += (ROOT / "results" / "variants").iterdir()


@cache
def evaluation(name: str) -> Evaluation:
    return load(next(folder for folder in FOLDERS if folder.name == name))


def on_one_line(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").replace("\\\n", " ").split())


def seeds(name: str) -> list[Evaluation]:
    found = [evaluation(folder.name) for folder in sorted(FOLDERS) if folder.name.rpartition("-seed")[0] == name]
    assert found
    return found


@cache
def difference(ours: str, theirs: str, threat: str, radius: float) -> Cell:
    (row,) = contrast(Comparison.of([*seeds(theirs), *seeds(ours)]), threat, [radius]).rows
    return row.cells[2]


def points(ours: str, theirs: str, threat: str, radius: float) -> str:
    """As the first table says it: +0.3 points, −0.9 to +1.4."""
    found = difference(ours, theirs, threat, radius)
    return f"{found.text} points{{}}{found.note.partition(',')[0]}"


def behind(ours: str, theirs: str, threat: str, radius: float) -> str:
    text = difference(ours, theirs, threat, radius).text
    assert text.startswith("−")
    return text[1:]


def clean(ours: str, theirs: str) -> float:
    """The difference on all clean test images, in percentage points, mean over seeds."""

    def accuracy(name: str) -> float:
        shares = [1 - wrong / n for wrong, n in (each.clean or (0, 0) for each in seeds(name))]
        return 100 * sum(shares) / len(shares)

    return accuracy(ours) - accuracy(theirs)


def hours(name: str) -> float:
    found = evaluation(name).subject.hours
    assert found is not None
    return found


def of_time(ours: str, theirs: str) -> float:
    """Hours of a run over those of another on the same kind of machine."""
    machines = {each.subject.machine or each.origin.machine for each in map(evaluation, (ours, theirs))}
    assert len(machines) == 1
    return hours(ours) / hours(theirs)


def span(values: list[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


LINF, LAZY, L2, AT, AT_L2 = "cifar10-linf", "cifar10-linf-lazy", "cifar10-l2", "cifar10-at", "cifar10-at-l2"
EIGHT, SIXTEEN = 8 / 255, 16 / 255


def lazy_time() -> str:
    # Each beside adversarial training on its kind of machine.
    return span([of_time(f"{LAZY}-seed{seed}", f"{AT}-seed{other}") for seed, other in ((0, 2), (1, 1), (2, 2))])


def lazy_cost() -> str:
    whole = compare([folder for folder in sorted(FOLDERS) if folder.parent.name == "cifar10"])
    ratios = [whole.cost_ratio(each) for each in whole.evaluations if each.subject.name.startswith(LAZY)]
    return span([ratio for ratio in ratios if ratio is not None])


def first_table() -> list[str]:
    linf_time = span([of_time(f"{LINF}-seed{seed}", f"{AT}-seed2") for seed in (0, 1, 2)])
    l2_time = span([of_time(f"{L2}-seed2", f"{AT_L2}-seed{seed}") for seed in (1, 2)])
    return [
        f"| `cifar10-compact-linf` | as robust ({points(LINF, AT, 'linf', EIGHT).format(', ')}), "
        f"clean {clean(LINF, AT):+.1f}, {linf_time} of its time |",
        f"| `cifar10-compact-linf-lazy` | {points(LAZY, AT, 'linf', EIGHT).format(' (')}), "
        f"clean {clean(LAZY, AT):+.1f}, {lazy_time()} of its time |",
        f"| `cifar10-compact-l2` | as robust ({points(L2, AT_L2, 'l2', 0.5).format(', ')}), "
        f"clean {clean(L2, AT_L2):+.1f}, {l2_time} of its time |",
        f"at l∞ 16/255 it is {behind(LINF, AT, 'linf', SIXTEEN)} points ahead of the penalty |",
        f"ahead by {behind('fashion-mnist-linf', 'fashion-mnist-at', 'linf', 0.1)} points at l∞ 0.1 and "
        f"{behind('fashion-mnist-l2', 'fashion-mnist-at-l2', 'l2', 1.5)} at l2 1.5 |",
    ]


def agreement() -> list[str]:
    """On how many of the 1,000 images AutoAttack and our attacks agree, network by network."""
    agree = {}
    for folder in FOLDERS:
        if folder.parent.name != "cifar10":
            continue
        for threat, record in evaluation(folder.name).threats.items():
            for confirmed in record.confirmed:
                same = record.robust_to_attacks(confirmed.eps) == confirmed.robust
                agree[folder.name, threat] = (int(same.sum()), int(record.missed(confirmed).sum()))
    assert {name for name, (same, _) in agree.items() if same == 999} == {
        (f"{LINF}-seed0", "linf"),
        (f"{AT}-seed0", "linf"),
    }
    assert not any(missed for _, missed in agree.values()), "what they differ on, our attacks broke"
    assert (
        agree[f"{LAZY}-seed1", "linf"][0] == agree[f"{L2}-seed0", "l2"][0] == agree[f"{AT_L2}-seed0", "l2"][0] == 1000
    )
    return [
        f"AutoAttack, where it was run, agrees on at least {min(same for same, _ in agree.values())} of 1,000 images.",
        "AutoAttack and our attacks agree on all 1,000 images for the lazy penalty's network of seed 1.",
        "For seed 0 of the penalty in every step and of adversarial training they agree on 999, and ours broke one "
        "more each.",
        "AutoAttack and our attacks agree on all 1,000 images of both networks of seed 0 at 0.5.",
    ]


def findings() -> list[str]:
    """The one network with a finding, and what it says."""
    raised = {
        folder.name: flag
        for folder in FOLDERS
        if folder.parent.name == "cifar10"
        for record in evaluation(folder.name).threats.values()
        for flag in record.flags
        if flag.severity != "info"
    }
    (name, flag), *others = raised.items()
    assert (name, flag.code, others) == (f"{AT}-seed2", "loss-matters", [])
    assert "21 of 70 images with the cross entropy and 30 of 70 images with the margin" in flag.finding
    return ["PGD with the cross entropy broke 21 of 70 images, and PGD with the margin 30."]


def sentences() -> list[str]:
    attacked = difference(LINF, AT, "linf", 0.0).text.removeprefix("+")
    far_end = difference(LAZY, AT, "linf", EIGHT).note.partition(" to ")[0].removeprefix("−")
    fashion = -clean("fashion-mnist-linf", "fashion-mnist-at")
    xeon = [of_time(f"cifar10-linf-eps8-seed{seed}", f"{AT}-seed{seed}") for seed in (0, 1)]
    return [
        f"equally good: {difference(LINF, AT, 'linf', EIGHT).text.removeprefix('+')} points apart",
        f"On the 1,000 images that were attacked it is ahead by {attacked} points",
        f"**It costs** {of_time(f'{LINF}-seed2', f'{AT}-seed2'):.2f} of the training time.",
        f"Measured, it takes {lazy_cost()} times as long as plain training, and {lazy_time()} of adversarial "
        "training's time on the same machine.",
        f"it is {behind(LAZY, AT, 'linf', EIGHT)} points behind adversarial training at 8/255, which may be chance, "
        f"and {far_end} points at the far end of the interval. It is {clean(LAZY, AT):.1f} points ahead on clean "
        "images",
        f"for {of_time(f'{L2}-seed2', f'{AT_L2}-seed2'):.2f} of the training time. At 0.5 it is ahead by "
        f"{difference(L2, AT_L2, 'l2', 0.5).text.removeprefix('+')} points on average",
        f"It is ahead by {behind('fashion-mnist-linf', 'fashion-mnist-at', 'linf', 0.1)} points at l∞ 0.1 and "
        f"{fashion:.1f} on clean images of the whole test set, with two trainings each. At l2 1.5 it is ahead by "
        f"{behind('fashion-mnist-l2', 'fashion-mnist-at-l2', 'l2', 1.5)} points",
        f"in {hours('cifar10-undefended-seed2'):.3f} hours, which the costs here are multiples of",
        f"(AMD EPYC: {hours(f'{LINF}-seed2'):.2f} and {hours(f'{AT}-seed2'):.2f} hours; {xeon[0]:.2f} "
        f"and {xeon[1]:.2f} on the Xeon, with ε = 8/255)",
        f"against l2 ({hours(f'{L2}-seed2'):.2f} and {hours(f'{AT_L2}-seed2'):.2f} hours; "
        f"{of_time(f'{L2}-seed0', f'{AT_L2}-seed0'):.2f} on the Xeon)",
    ]


@pytest.mark.parametrize("claims", [first_table, agreement, findings, sentences])
def test_the_prose_says_what_the_evaluations_say(claims: Callable[[], list[str]]) -> None:
    page = on_one_line("docs/results.md")
    for claim in claims():
        assert claim in page


def test_readme_says_what_the_measurement_of_attacks_says() -> None:
    found = read(ROOT / "results" / "bench" / "attacks.json")
    ours = [row for row in found["rows"] if row["attack"] == "standard"]
    most, nine_of_ten = max(row["most"] for row in ours), max(row["p90"] for row in ours)
    page = on_one_line("README.md")
    assert f"took at most {most} propagations per image" in page
    assert f"came within {100 * (nine_of_ten - 1):.1f} % of the nearest adversarial image" in page
    assert f"{found['options']['images']} images" in page
    assert f"commit {found['machine']['commit']}" in page
    radius = {(row["network"], row["threat"], row["attack"]): row for row in found["radius_rows"]}
    for (network, threat, attack), row in radius.items():
        if attack == "standard":
            reference = radius[network, threat, "autoattack standard"]
            assert row["robust"] == reference["robust"], "as many images robust as AutoAttack"
            costs = [each["forwards"] + each["backwards"] for each in (row, reference)]
            assert costs[0] / costs[1] == pytest.approx(0.2, abs=0.005) or costs[0] < 0.2 * costs[1], "a fifth at most"


def test_the_command_on_the_page_of_attacks_is_the_recorded_one() -> None:
    """A run that was renamed since is named as it is called now, and the page says so."""
    options = read(ROOT / "results" / "bench" / "attacks.json")["options"]
    page = on_one_line("docs/attacks.md")
    undefended, regularised = options["runs"]
    renamed = "runs/cifar10-linf-eps8-seed0"
    assert f"--undefended {undefended} --regularised {renamed}" in page
    assert f"--data {options['data']} --images {options['images']} --chunk {options['chunk']}" in page
    assert f"the file records it as `{regularised}`, its name at the time" in page


def test_the_prose_says_what_the_measurement_of_steps_says() -> None:
    times = {}
    for name in ("training", "training-channels-last"):
        found = read_json(ROOT / "results" / "bench" / f"{name}.json")
        times[name] = {each["name"]: f"{each['seconds']:.2f}" for each in found["costs"]}
    last, first = times["training-channels-last"], times["training"]
    penalty, adversarial = last["penalty"], last["adversarial training, 7 steps"]
    assert f"A step by itself costs {penalty} and {adversarial} times a plain one" in on_one_line("docs/results.md")
    assert (
        f"a compiled plain step takes {last['plain, compiled']} of the eager time, the penalty costs {penalty}×, "
        f"adversarial training {adversarial}× and double backprop {last['double backprop']}×."
    ) in on_one_line("README.md")
    assert (
        f"a quarter: {first['penalty, fraction 1/4']}× a plain step, or "
        f"{first['penalty, fraction 1/4, frozen bn']}× with"
    ) in on_one_line("docs/choose.md")
