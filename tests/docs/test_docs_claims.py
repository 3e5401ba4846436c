"""The page of claims: its table is the file's, and every claim has a check that ran."""

import json
from pathlib import Path

import pytest

from bench.claims import claim, command, cost, digits, records
from bench.options import ClaimOptions
from docs.make.claims import claims_table
from gradreg.errors import DataError

ROOT = Path(__file__).parents[2]
QUICK = ClaimOptions(images=8, epochs=1, rounds=1, results=ROOT / "results")


def test_every_claim_has_a_row_and_a_key_of_its_own() -> None:
    keys = [each.key for each in command.CLAIMS]
    assert len(set(keys)) == len(keys)
    written = json.loads((ROOT / "results" / "bench" / "claims.json").read_text("utf-8"))["claims"]
    assert [row["key"] for row in written] == keys
    assert [row["says"] for row in written] == [each.says for each in command.CLAIMS]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_text("{}")
    with pytest.raises(DataError, match="must be a file that `python -m bench claims --json` wrote; got KeyError"):
        claims_table(tmp_path / "claims.json")


@pytest.mark.parametrize(
    "check",
    [
        records.lipschitz_bound_is_vacuous,
        records.omega_bound_is_closer,
        records.accuracy_is_traded_for_robustness,
        records.adversarial_training_is_slightly_better,
        records.strong_penalty_wins_in_l2,
        records.gradients_and_omega_fall,
        records.smoothing_agrees_with_the_bounds,
    ],
)
def test_what_the_records_say_is_what_the_page_says(check: object) -> None:
    """These need no training, so the page must repeat them to the digit."""
    mine = next(each for each in command.CLAIMS if each.check is check)
    written = json.loads((ROOT / "results" / "bench" / "claims.json").read_text("utf-8"))["claims"]
    row = next(row for row in written if row["key"] == mine.key)
    found = mine.check(QUICK)
    assert (row["measured"], row["verdict"]) == (found.measured, found.verdict)


def test_a_bound_is_one_forward_and_one_backward() -> None:
    assert cost.one_gradient_per_bound(QUICK) == claim.Finding(
        "Counted: 1 forward and 1 backward per image (n = 8).", "holds"
    )


@pytest.mark.slow
def test_checks_on_digits_give_findings() -> None:
    found = digits.differences_control_omega(QUICK)
    assert "digits, n = 8, seeds 0 and 1" in found.measured
    assert digits.quadratic_attacker_is_bounded(QUICK).verdict == "holds"
