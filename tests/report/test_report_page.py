"""The page as text: its sentences, structure and safety, by hand-made figures and a real parser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import torch
from generated import generated

from gradreg.diagnosis.flags import left_out, make
from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.page import html as page_html
from gradreg.report.page import provenance
from gradreg.report.page.verdict import _diagnosis_verdict, cards, leaders, sorted_flags
from handmade import handmade, renamed

HOSTILE = '</script><script>hacked=1</script><img src=x onerror="hacked=1">&amp;\'"'
VOID = {"meta", "img", "br", "path", "input"}


def render(evaluations: list[Evaluation], paper: bool = False) -> str:
    return page_html.render(Comparison.of(evaluations), paper)


class Page(HTMLParser):
    """Elements in order, and the text under each; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[int, str] = {}
        self._open: list[tuple[str, int]] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, i in self._open:
            self.text[i] = self.text.get(i, "") + data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        return [self.text.get(i, "") for i, (name, _) in enumerate(self.elements) if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return render(generated(), paper=True)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def hostile() -> Evaluation:
    """Every text that comes from outside is an attack on the page."""
    evaluation = renamed(handmade(), HOSTILE, source=HOSTILE, architecture=HOSTILE, recipe={"data": HOSTILE})
    flag = make("not-converged", "warning", HOSTILE, **{HOSTILE: HOSTILE})
    threats = {name: replace(x, flags=(flag,), bounded=None, refusal=HOSTILE) for name, x in evaluation.threats.items()}
    winner = (HOSTILE,) * len(evaluation)
    threats = {name: replace(x, attacked=replace(x.attacked, winner=winner)) for name, x in threats.items()}
    data = replace(evaluation.data, name=HOSTILE, classes=(HOSTILE,) * 3)
    origin = replace(evaluation.origin, machine=HOSTILE, commit=HOSTILE)
    return replace(evaluation, threats=threats, data=data, origin=origin, notes=(HOSTILE,))


# --- the opening ---


def test_the_verdict_says_the_figures_in_words() -> None:
    """Distances 0, 0.1 … 0.9 in l2 and a hundredth of it in l∞: 8/255 = 0.0314 breaks four of ten images."""
    plain = renamed(handmade(hours=1.0), "plain", objective="undefended")
    card = cards(Comparison.of([plain, handmade()]))[1]
    assert card.summary == (
        "Clean accuracy 90.0 %. Robust accuracy at l∞ 2/255 and 8/255: 90.0 % and 60.0 %. Robust accuracy at l2 0.25, "
        "0.5 and 1: 70.0 %, 40.0 % and 0.0 %. Trained in 2.00 hours, 2.00 times as long as undefended."
    )
    linf = card.findings[0]
    assert linf.accuracies[1].interval == "26.2–87.8 %"  # Clopper-Pearson for 6 of 10
    assert linf.distance.text == "10.2/255"  # the mean of 0 … 0.08 is 0.04
    assert linf.distance.note == "n = 9, 1 unbroken left out"


def test_the_cost_is_said_as_far_as_it_is_known() -> None:
    assert cards(Comparison.of([handmade(hours=None)]))[0].cost == "Training time unknown."
    assert cards(Comparison.of([handmade()]))[0].cost == "Trained in 2.00 hours."
    assert cards(Comparison.of([handmade(hours=0.05)]))[0].cost == "Trained in 3.00 minutes."
    assert cards(Comparison.of([handmade(hours=0.01)]))[0].cost == "Trained in 36.0 seconds."


def test_the_highest_accuracy_is_named_with_its_doubts() -> None:
    far = handmade("far")
    doubtful = make("not-converged", "warning", "Too few steps.")
    threats = {
        name: replace(x, flags=(doubtful,), attacked=replace(x.attacked, distance=torch.full((10,), 9.0)))
        for name, x in far.threats.items()
    }
    said = leaders(Comparison.of([handmade("near"), replace(far, threats=threats)]))
    assert said[1] == (
        "At l2 0.5, “far” has the highest robust accuracy, 100.0 %, then “near”, 40.0 %; on 10 images their 95 % "
        "intervals overlap. Diagnosis of “far”: suspicious."
    )
    tie = leaders(Comparison.of([handmade("one"), handmade("two")]))[0]
    assert "“one” and “two” have the highest robust accuracy, 60.0 %; on 10 images their 95 % intervals overlap." in tie
    assert leaders(Comparison.of([handmade()])) == []


def test_the_verdict_of_the_diagnosis() -> None:
    passed, warned = make("train-mode", "info", "Fine."), make("not-converged", "warning", "Not yet.")
    failed = make("noise-wins", "error", "Noise wins.")
    assert _diagnosis_verdict([passed])[:2] == ("clear", "no sign of masking in these tests")
    assert _diagnosis_verdict([passed, warned]) == ("suspicious", "suspicious", "not-converged: Not yet.")
    assert _diagnosis_verdict([warned, failed])[0] == "broken"
    assert (
        _diagnosis_verdict([])[:2]
        == _diagnosis_verdict([left_out(["a"], "for once")])[:2]
        == ("unknown", "not tested for masking")
    )


def test_the_worst_flags_come_first() -> None:
    groups = sorted_flags(Comparison.of(generated()))
    severities = [[flag.severity for flag in group.raised] for group in groups]
    assert severities == [["error", "warning"], ["warning"], *[[]] * 6]
    assert all(len(group.passed) == 5 and len(group.left_out) == 1 for group in groups)


def test_a_model_is_never_called_unmasked(html: str) -> None:
    assert "not masked" not in html
    assert html.count("no sign of masking in these tests") == 8, "of six threats, and of two models in the verdict"


# --- the page as a whole ---


def test_accuracy_is_the_convention_of_the_whole_page_but_for_the_papers_tables(html: str) -> None:
    """Clean and robust accuracy in the verdict, the charts, the cards and our tables; the paper's tables say errors."""
    parts = re.split(r'<section id="([a-z]+)"', html)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    words = {
        name: re.sub(r'<svg.*?</svg>|<[^>]*class="[^"]*"', "", text, flags=re.S) for name, text in sections.items()
    }
    for name in ("verdict", "curves", "frontier", "models", "tables", "distances", "gaps"):
        assert not re.search(r"\berrors?\b", words[name]), name
        assert name in ("distances", "gaps") or "accuracy" in words[name]
    assert "errors, which are 1 minus accuracy" in words["paper"]
    assert "clean error" in words["paper"]


def test_a_legend_names_what_is_drawn_and_no_more(html: str) -> None:
    """Bounds and certificates are drawn where they are asked for, and explained there."""
    curves = html[html.index('id="curves"') : html.index('id="frontier"')]
    large, _, folded = curves.partition("<details")
    assert "ω-bound (heuristic)</li>" not in large
    assert folded.count("ω-bound (heuristic)</li>") == 2
    assert large.count("<li class=") == 4


def test_pictures_come_before_tables(page: Page) -> None:
    order = [attributes["id"] for attributes in page.of("section")]
    assert order[:3] == ["verdict", "curves", "frontier"]
    assert order.index("tables") > order.index("images")


def test_every_text_from_outside_stays_text() -> None:
    text = render([hostile()])
    page = Page(text)
    assert [attributes.get("type") for attributes in page.of("script")] == [
        "application/json",
        "application/json",
        None,
    ]
    assert all((attributes["src"] or "").startswith("data:image/png;base64,") for attributes in page.of("img"))
    assert HOSTILE in page.texts("h3")
    json.loads(page.texts("script")[0])


def test_nothing_is_asked_of_the_network(page: Page) -> None:
    for _, attributes in page.elements:
        assert not {"action", "srcset", "data", "poster"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert (attributes.get("src") or "data:image/png").startswith("data:image/png")
    assert not page.of("link")
    assert "@import" not in page.texts("style")[0]
    assert "url(" not in page.texts("style")[0]


def test_the_policy_allows_this_style_and_script_and_no_other(page: Page) -> None:
    policy = next(meta["content"] for meta in page.of("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    for name, text in (("style", page.texts("style")[0]), ("script", page.texts("script")[2])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert all("style" not in attributes and "onclick" not in attributes for _, attributes in page.elements)


def test_headings_go_down_one_step_at_a_time(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_everything_can_be_found_and_is_named(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    pointers = ("aria-labelledby", "aria-describedby")
    targets = [attributes[name] for _, attributes in page.elements for name in pointers if name in attributes]
    targets += [(attributes["href"] or "")[1:] for attributes in page.of("a")]
    assert set(targets) <= set(ids)
    assert all(attributes.get("alt") for attributes in page.of("img"))
    assert len(page.of("table")) == len(page.of("caption"))
    plots = [attributes for attributes in page.of("div") if attributes.get("role") == "img"]
    assert len(plots) > 20
    assert all(len(plot["aria-label"] or "") > 30 for plot in plots)


def test_charts_and_their_readings_come_in_the_same_order(page: Page) -> None:
    readings = json.loads(page.texts("script")[0])
    plots = [attributes for attributes in page.of("div") if "reads" in (attributes.get("class") or "")]
    assert len(plots) == len(readings)
    first = readings[0]["series"][0]
    assert f"{first['name']}: {first['y'][0]} at {first['x'][0]}" in (plots[0]["aria-label"] or "")
    last = readings[-1]["series"]
    assert f"of the {sum(len(part['x']) for part in last)} images shown" in (plots[-1]["aria-label"] or "")


def test_quoted_rows_are_marked(page: Page) -> None:
    rows = [attributes for attributes in page.of("tr") if attributes.get("class") == "quoted"]
    assert len(rows) == len([text for text in page.texts("small") if text == "quoted from the paper"]) > 5
    assert "quoted from the paper" not in render([handmade()])


def test_what_all_models_share_is_said_once() -> None:
    one, two = provenance.of(handmade("one")), provenance.of(handmade("two"))
    assert dict(provenance.shared([one, two]))["Seed"] == "0"
    assert "Source" not in dict(provenance.shared([one, two]))
    assert provenance.shared([one]) == ()
    assert one.commands == (
        "gradreg train recipe.toml --run runs/one",
        "gradreg evaluate runs/one --data mnist5k --threat l2,linf --images 10 --attacks standard --regularity ascent "
        "--smoothing 0.25 --samples 1000 --seed 0",
    )
    assert provenance.of(renamed(handmade(), "any", source="Python")).commands == ()
    (weights,) = provenance.of(renamed(handmade(), "any", source="a b.safetensors", recipe=None)).commands
    assert weights.startswith("gradreg evaluate 'a b.safetensors' --data mnist5k --architecture small --threat")
    assert one.recipe == "epochs = 3\nseed = 0\n"


def test_two_models_of_one_name_are_told_apart() -> None:
    page = Page(render([handmade(), handmade()]))
    assert {"by hand", "by hand (2)"} <= set(page.texts("h3"))


def test_a_report_needs_something_to_report_on() -> None:
    with pytest.raises(DataError, match="There is no evaluation"):
        render([])


@pytest.mark.parametrize("distance", [0.0, 0.3, float("inf")])
@pytest.mark.parametrize("bound", [0.0, 0.1, float("inf")])
def test_the_most_extreme_figures_have_a_page(distance: float, bound: float) -> None:
    """Every image is misclassified, broken at the same distance or unbroken; bounds vanish or have no end."""
    evaluation = handmade()
    threats = {}
    for name, x in evaluation.threats.items():
        assert x.bounded is not None
        bounded = replace(x.bounded, omega_bound=torch.full((10,), bound), lipschitz_bound=torch.full((10,), bound))
        threats[name] = replace(x, attacked=replace(x.attacked, distance=torch.full((10,), distance)), bounded=bounded)
    text = render([replace(evaluation, threats=threats)])
    page, _, script = text.rpartition("<script>")
    assert "Infinity" in script  # where it may be
    assert not re.search(r"\b(nan|inf|infinity)\b", page, re.IGNORECASE)


def test_a_model_without_threats_bounds_or_gallery_has_a_page() -> None:
    bare = replace(handmade(), threats={}, smoothing=(), clean=None)
    assert "no threat was evaluated" in render([bare])
    stripped = {
        name: replace(x, bounded=None, refusal="Gradients vanish.", flags=(), gallery=None)
        for name, x in handmade().threats.items()
    }
    text = render([replace(handmade(), threats=stripped)])
    assert "no bounds. Gradients vanish." in text
    assert "not tested for masking" in text
