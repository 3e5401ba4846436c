"""Every argument of everything public, replaced by what it must not be: one sentence before any forward, or an answer.

`calls` has a valid call of each. What is new is found here through the lists of public names, and needs one too.
"""

import re
import shutil
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from arguments.calls import CALLS, INNER, MADE, OTHERWISE
from arguments.spoiled import spoiled
from arguments.surface import entries
from arguments.trying import complaints, run
from gradreg.errors import GradregError


def test_everything_public_has_a_valid_call() -> None:
    known = entries()
    inner = {name for name in known if any(re.fullmatch(pattern, name) for pattern in INNER)}
    without_arguments = {name for name, entry in known.items() if not entry.arguments}
    missing = known.keys() - CALLS.keys() - MADE - inner - without_arguments
    assert not missing, f"Add a valid call to tests/arguments/calls.py: {sorted(missing)}"
    assert CALLS.keys() | MADE <= known.keys()
    assert not CALLS.keys() & (MADE | inner)


def test_there_are_as_many_as_docs_say() -> None:
    known = entries()
    tried = sum(
        len(spoiled(name, each, call.given())) for name, call in CALLS.items() for each in known[name].arguments
    )
    assert tried > 20_000  # docs/reliability.md


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_are_refused_or_mean_something(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry, call = entries()[name], CALLS[name]
    if not call.heavy:
        with pytest.raises(GradregError, match=call.needs) if _lacks(call.needs) else nullcontext():
            run(entry, call, {})
    found = list(complaints(entry, call, "impossible" if call.heavy else "all"))
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize("name", OTHERWISE)
def test_odd_arguments_of_another_valid_call_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(complaints(entries()[name], OTHERWISE[name], "impossible"))
    assert not found, "\n".join(["", *found])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.heavy])
def test_odd_arguments_that_may_be_valid_mean_something(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry, call = entries()[name], CALLS[name]
    with pytest.raises(GradregError, match=call.needs) if _lacks(call.needs) else nullcontext():
        run(entry, call, {})
    shutil.rmtree("run", ignore_errors=True)
    found = list(complaints(entry, call, "possible"))
    assert not found, "\n".join(["", *found])


def _lacks(package: str) -> bool:
    return bool(package) and find_spec(package) is None
