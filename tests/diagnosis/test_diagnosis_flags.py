"""Flags as data: JSON, the verdict, and that the page explains exactly the codes that there are."""

import json
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradreg.attacks.suite import ATTACKS
from gradreg.bounds import Bound
from gradreg.diagnosis import Flag, is_proven_bug, verdict
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.claims import Claims, Comparison
from gradreg.diagnosis.contests import Contest
from gradreg.diagnosis.flags import Severity, graded, left_out, make
from gradreg.diagnosis.registry import TESTS
from gradreg.errors import DataError

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
evidence = st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.floats(allow_nan=False)))


@given(code=st.sampled_from(sorted(TESTS)), given=evidence, words=st.text())
def test_a_flag_survives_json(code: str, given: dict[str, float | int | str], words: str) -> None:
    given = {name: value for name, value in given.items() if value not in (float("inf"), -float("inf"))}
    flag = Flag(code, "warning", given, words, TESTS[code].advice)
    assert Flag.from_json(flag.to_json()) == flag


def test_numbers_that_json_lacks_become_words() -> None:
    flag = graded("unstable-gradient", float("nan"), "…", warn=0.9, low=True, ratio=float("inf"))
    assert flag.severity == "warning"
    assert json.loads(flag.to_json())["evidence"] == {"value": "nan", "threshold": 0.9, "ratio": "inf"}


@pytest.mark.parametrize("text", ["{", "[]", '{"code": "randomised"}'])
def test_what_is_no_flag_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(DataError, match=r"This flag .*expected a line that to_json wrote"):
        Flag.from_json(text)


def test_unknown_codes_and_severities_are_refused() -> None:
    with pytest.raises(DataError, match="no flag 'masked'"):
        Flag("masked", "info", {}, "")
    with pytest.raises(DataError, match=r"severity must be .* got 'fatal'"):
        Flag("randomised", "fatal", {}, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "low", "severity"),
    [
        (0.0, False, "info"),
        (0.1, False, "info"),
        (0.11, False, "warning"),
        (0.6, False, "error"),
        (0.6, True, "info"),
        (0.49, True, "warning"),
        (0.05, True, "error"),
    ],
)
def test_limits(value: float, low: bool, severity: Severity) -> None:
    limits = (0.5, 0.1) if low else (0.1, 0.5)
    flag = graded("randomised", value, "…", warn=limits[0], error=limits[1], low=low)
    assert flag.severity == severity
    assert flag.evidence["threshold"] == (limits[1] if severity == "error" else limits[0])
    assert bool(flag.advice) == (severity != "info")


def test_the_verdict_is_that_of_the_worst_flag() -> None:
    fine, odd, bad = (make("randomised", severity, severity) for severity in ("info", "warning", "error"))
    assert verdict([]).word == verdict([fine]).word == "no sign of masking in these tests"
    assert verdict([fine, odd]).word == "suspicious"
    assert verdict([odd, bad, fine]).word == "broken"
    assert "1 tests were run" in verdict([fine, left_out(["noise-wins"], "since it is late")]).reason


def test_only_a_contradicted_certificate_is_a_proven_bug() -> None:
    harmless = [make(code, "error", "…") for code in TESTS if code != "certificate-contradicted"]
    assert not is_proven_bug(harmless)
    assert not is_proven_bug([make("certificate-contradicted", "info", "…")])
    contradiction = make("certificate-contradicted", "error", "Image 3 contradicts.")
    assert is_proven_bug([*harmless, contradiction])
    assert verdict([*harmless, contradiction]).reason == "Image 3 contradicts."


def test_the_page_explains_every_code_and_no_other_in_the_order_of_a_diagnosis() -> None:
    explained = re.findall(r"^### `([a-z0-9-]+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert explained == list(TESTS)


@pytest.mark.parametrize("code", [code for code, test in TESTS.items() if test.stage != "note"])
def test_every_entry_names_a_function_that_takes_what_its_stage_gives(code: str) -> None:
    test = TESTS[code]
    module, _, function = test.run.partition(".")
    run = getattr(import_module(f"gradreg.diagnosis.{module}"), function)
    given = {"contest": Contest, "claim": Comparison}.get(test.stage, Case)
    (taken, returned) = get_type_hints(run).values()
    assert (taken, returned) == (given, Flag)
    claims = {each.name for each in fields(Claims)} | {f"bound.{each.name}" for each in fields(Bound)}
    assert set(test.needs) <= {"contest": set(ATTACKS), "claim": claims}.get(test.stage, set())
