"""An evaluation that was written and read again is the same to the bit; a damaged one is refused in one sentence."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradreg.diagnosis.flags import Flag
from gradreg.errors import DataError, StorageError
from gradreg.evaluation.files import load, save
from gradreg.evaluation.record import Evaluation
from gradreg.smoothing.intervals import clopper_pearson
from handmade import confirmation, confirmed, handmade

HOSTILE = 'a,b"c"\r\nd\te</script><script>alert(1)</script> ‖∇ℓ‖ \udc80'


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, NaN included, and of the same types."""
    if isinstance(a, Tensor):
        bits = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[a.element_size()]
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a.view(bits), b.view(bits))
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def saved(evaluation: Evaluation, folder: Path) -> Path:
    evaluation.save(folder)
    return folder


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    evaluation = handmade()
    save(evaluation, tmp_path)
    assert same(load(tmp_path), evaluation)
    assert same(load(tmp_path / "evaluation.json"), evaluation)
    assert not same(load(tmp_path), replace(evaluation, margin=evaluation.margin.nextafter(torch.tensor(1.0))))


def test_awkward_numbers_and_words_survive(tmp_path: Path) -> None:
    evaluation = handmade(HOSTILE)
    numbers = torch.tensor([0.1, 1e-45, 3e38, -0.0, math.inf, 5.0, 1 / 3, 2**-149, 1, 0])
    l2 = evaluation.threats["l2"]
    flag = Flag("single-step-wins", "error", {HOSTILE: math.inf, "n": 3, "x": 3.0, "s": "inf"}, HOSTILE, HOSTILE)
    attacked = replace(l2.attacked, distance=numbers, winner=(HOSTILE, "", *l2.attacked.winner[2:]))
    assert l2.bounded is not None
    bounded = replace(l2.bounded, omega_bound=numbers.double() / 3, lipschitz=math.inf)
    awkward = replace(
        evaluation,
        margin=torch.tensor([1e-300, -0.0, -1, 1, 0.1, -1 / 3, 1e-45, 0, 0, 0], dtype=torch.float64),
        subject=replace(evaluation.subject, recipe={"deep": [{"er": [HOSTILE, math.nan, None, True]}]}, hours=None),
        data=replace(evaluation.data, classes=(HOSTILE, "", ",")),
        threats={
            "l2": replace(l2, attacked=attacked, bounded=bounded, flags=(flag,)),
            "linf": replace(evaluation.threats["linf"], bounded=None, refusal=HOSTILE, gallery=None),
        },
        smoothing=(),
        clean=None,
        notes=(HOSTILE,),
    )
    save(awkward, tmp_path)
    assert same(load(tmp_path), awkward)
    json.loads((tmp_path / "evaluation.json").read_bytes(), parse_constant=pytest.fail)


def test_the_table_is_one_that_others_read(tmp_path: Path) -> None:
    evaluation = handmade()
    refused = replace(evaluation.threats["linf"], bounded=None, refusal="No.")
    save(replace(evaluation, threats={**evaluation.threats, "linf": refused}), tmp_path)
    with (tmp_path / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:6] == ["index", "label", "prediction", "margin", "l2.distance", "l2.winner"]
    assert list(rows[0])[-3:] == ["smoothing[0.25].prediction", "smoothing[0.25].radius", "smoothing[0.25].samples"]
    assert [row["index"] for row in rows] == [str(7 * i) for i in range(10)]
    assert [float(row["l2.distance"]) for row in rows] == evaluation.threats["l2"].attacked.distance.tolist()
    assert rows[-1]["linf.distance"] == "inf"
    assert {row["linf.omega_bound"] for row in rows} == {""}


def test_the_summary_is_of_the_columns_and_is_not_read_back(tmp_path: Path) -> None:
    """Distances are 0, 0.1, …, 0.9: six of ten lie within 0.5, three within 0.25; 5 of 10 are certified at 0.25."""
    path = saved(handmade(), tmp_path) / "evaluation.json"
    content = json.loads(path.read_text())
    found = content["summary"]
    assert found["clean_error"]["value"] == 0.1
    assert found["clean_error_of_the_whole_test_set"] == 0.1
    low, high = clopper_pearson(6, 10)
    l2, linf = found["threats"]["l2"], found["threats"]["linf"]
    assert l2["robust_error"]["0.5"] == {"value": 0.6, "low": low, "high": high, "n": 10}
    assert l2["robust_error"]["0.25"]["value"] == 0.3
    assert l2["mean_distance"] == pytest.approx(0.45)
    assert linf["mean_distance"] == pytest.approx(0.04)
    assert linf["unbroken"] == 1
    assert l2["omega_bound"] == {"violation_rate": 0.0, "tightness": pytest.approx(0.5), "n": 9}
    assert found["certified_accuracy"]["sigma 0.25"]["0.25"]["value"] == 0.6
    content["summary"] = "something else"
    path.write_text(unsealed(json.dumps(content)))
    assert same(load(tmp_path), handmade())


def test_what_came_later_may_be_left_out(tmp_path: Path) -> None:
    """A file of before a field was added means its default."""
    path = saved(handmade(), tmp_path) / "evaluation.json"
    content = json.loads(path.read_text())
    del content["notes"], content["settings"]["topk"]
    path.write_text(unsealed(json.dumps(content)))
    assert same(load(tmp_path), handmade())


def test_confirmations_are_columns_and_older_files_have_none(tmp_path: Path) -> None:
    """Two radii of a threat are two columns of it; a file of before they were thought of loads without."""
    found = confirmation(0.25, [0, 1, 2]), confirmation(0.5, [0, 1, 2, 7])
    evaluation = confirmed(handmade(), "l2", *found)
    save(evaluation, tmp_path)
    assert same(load(tmp_path), evaluation)
    with (tmp_path / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])
    assert names[names.index("l2.omega_bound") + 1 :][:3] == [
        "l2.autoattack[0.25]",
        "l2.autoattack[0.5]",
        "linf.distance",
    ]
    assert "".join(row["l2.autoattack[0.5]"] for row in rows) == "0001111011"
    path = saved(handmade(), tmp_path) / "evaluation.json"
    content = json.loads(path.read_text())
    assert "confirmed" not in content["summary"]["threats"]["l2"]
    for record in content["threats"].values():
        assert record.pop("confirmed") == []
    path.write_text(unsealed(json.dumps(content)))
    assert same(load(tmp_path), handmade())


def unsealed(text: str) -> str:
    """Without the checksum, as files of before there was one."""
    content = json.loads(text)
    del content["checksum"]
    return json.dumps(content)


def facts_with(part: str, name: str, value: object) -> Callable[[str], str]:
    """The facts with another value there, and without their checksum."""

    def edited(text: str) -> str:
        content = json.loads(unsealed(text))
        content[part][name] = value
        return json.dumps(content)

    return edited


def change(name: str, edit: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(edit((folder / name).read_text()))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing there": (lambda f: (f / "evaluation.json").unlink(), "holds no finished evaluation"),
    "empty facts": (change("evaluation.json", lambda text: ""), "evaluation.json is not valid JSON"),
    "cut facts": (
        change("evaluation.json", lambda text: text[:200]),
        "is not valid JSON: .*; it may be truncated: evaluate",
    ),
    "other JSON": (change("evaluation.json", lambda text: "[1, 2]"), "must hold a JSON object"),
    "other object": (change("evaluation.json", lambda text: "{}"), "is not an evaluation"),
    "another version": (
        change("evaluation.json", lambda text: text.replace('"version": 1', '"version": 2')),
        "an evaluation of version 2 and this gradreg reads version 1",
    ),
    "a digit changed": (
        change("evaluation.json", lambda text: text.replace('"parameters": 1234', '"parameters": 1235')),
        "was changed or damaged since it was written .*: restore it, or delete its checksum",
    ),
    "a fact gone": (
        change("evaluation.json", lambda text: unsealed(text).replace('"seed"', '"sead"')),
        r"is damaged: 'settings\.sead' is not expected here \(did you mean 'seed'\?\); evaluate again",
    ),
    "a fact changed": (
        change("evaluation.json", lambda t: unsealed(t).replace('"parameters": 1234', '"parameters": "x"')),
        r"subject\.parameters must be a whole number; got 'x'; evaluate again",
    ),
    "a seed in words": (
        change("evaluation.json", facts_with("subject", "recipe", {"seed": "abc"})),
        r"subject\.recipe\.seed must be a whole number; got 'abc'; evaluate again",
    ),
    "an option that is no list": (
        change("evaluation.json", facts_with("settings", "options", {"autoattack": {"linf": 0.1}})),
        r"settings\.options\.autoattack\.linf must be a list; got 0\.1; evaluate again",
    ),
    "an option of tables": (
        change("evaluation.json", facts_with("settings", "options", {"radii": [{"a": 3}]})),
        r"settings\.options\.radii must be a list of numbers or texts",
    ),
    "no table": (lambda f: (f / "images.csv").unlink(), "images.csv is missing"),
    "empty table": (change("images.csv", lambda text: ""), "images.csv is empty"),
    "cut table": (change("images.csv", lambda text: text[:-40]), "changed or cut short .*checksum"),
    "edited table": (change("images.csv", lambda text: text.replace("fmn", "fnm", 1)), "changed or cut short"),
    "no gallery": (lambda f: (f / "gallery.safetensors").unlink(), "gallery.safetensors is missing"),
    "cut gallery": (lambda f: (f / "gallery.safetensors").write_bytes(b"123456789"), "cannot be read as a gallery"),
    "another gallery": (
        lambda f: (saved(replace(handmade(), index=torch.arange(10)), f / "o") / "gallery.safetensors").replace(
            f / "gallery.safetensors"
        ),
        "belongs to another evaluation",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told_in_one_sentence(kind: str, tmp_path: Path) -> None:
    damage, sentence = DAMAGE[kind]
    damage(saved(handmade(), tmp_path))
    with pytest.raises(DataError, match=sentence) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("column", ["index", "l2.distance", "l2.forwards"])
@pytest.mark.parametrize("spelt", [" {}", "{} ", "+{}", "0{}", "1_{}", "٣", "{}x", ""])
def test_numbers_are_taken_as_they_are_written_and_not_as_python_reads_them(
    spelt: str, column: str, tmp_path: Path
) -> None:
    """Also where the checksum says that the table is as it was."""
    save(handmade(), tmp_path)
    with (tmp_path / "images.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    at = rows[0].index(column)
    rows[1][at] = spelt.format(rows[1][at])
    with (tmp_path / "images.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    content = json.loads(unsealed((tmp_path / "evaluation.json").read_text()))
    content["files"]["images.csv"]["sha256"] = sha256((tmp_path / "images.csv").read_bytes()).hexdigest()
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    with pytest.raises(
        DataError, match=r"Its table must hold numbers such as 1(\.0)? there; got .*; evaluate again"
    ) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_save_that_is_cut_short_leaves_no_half_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at each rename in turn, the folder holds no evaluation, or a whole one."""
    newer, rename = replace(handmade(), index=torch.arange(10)), Path.replace
    for survived in range(3):
        save(handmade(), tmp_path)
        left = survived

        def dying(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return rename(path, target)

        monkeypatch.setattr(Path, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            save(newer, tmp_path)
        monkeypatch.undo()
        with pytest.raises(DataError, match="holds no finished evaluation"):
            load(tmp_path)
    save(newer, tmp_path)
    assert same(load(tmp_path), newer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "gallery.safetensors", "images.csv"]


def test_a_full_disk_leaves_the_old_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the files it refuses."""
    save(handmade(), tmp_path)
    write, refused = Path.write_bytes, ""

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    def refusing(path: Path, content: bytes) -> int:
        return full() if path.name == refused else write(path, content)

    for refused in ("evaluation.json", "images.csv", "gallery.safetensors"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "write_bytes", refusing)
            if refused == "gallery.safetensors":
                patched.setattr("gradreg.storage.save_file", full)
            with pytest.raises(
                StorageError, match=r"could not be written \(No space left on device\): free some space"
            ):
                save(replace(handmade(), index=torch.arange(10)), tmp_path)
        assert same(load(tmp_path), handmade())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "gallery.safetensors", "images.csv"]


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        save(handmade(), tmp_path / "file")
    nothing = torch.arange(0)
    empty = replace(
        handmade(), index=nothing, label=nothing, prediction=nothing, margin=torch.zeros(0), threats={}, smoothing=()
    )
    with pytest.raises(DataError, match="holds no images"):
        save(empty, tmp_path)
