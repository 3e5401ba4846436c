"""`gradreg report` and `gradreg.report`: from evaluation folders to files, and what they refuse."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import gradreg
from gradreg.errors import ConfigError, DataError
from gradreg.evaluation.files import save
from gradreg.evaluation.record import Evaluation
from gradreg.report import command, report
from gradreg.report.compare import check_comparable, with_distinct_names
from handmade import handmade, renamed


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    places = [tmp_path / "one", tmp_path / "two"]
    for place, objective in zip(places, ("gradient", "undefended"), strict=True):
        save(handmade(objective=objective), place)
    return places


def run(
    folders: list[Path],
    output: Path | None,
    format: command.Format | None,
    figures: Path | None = None,
    paper: bool = False,
) -> str:
    stdout = io.StringIO()
    assert command.carry_out(folders, output, format, figures, paper, Console(file=stdout, width=60)) == 0
    return stdout.getvalue()


def test_a_text_report_goes_to_stdout_unwrapped_and_what_is_said_to_stderr(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = list(csv.DictReader(io.StringIO(run(folders, None, "csv"))))
    assert {row["row"] for row in rows if row["table"] == "table-1"} == {"by hand", "by hand (2)"}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("format", ["md", "tex", "csv", "json"])
def test_every_format_is_written_to_a_file(
    folders: list[Path], format: command.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    output = folders[0].parent / "deep" / f"report.{format}"
    assert run(folders, output, format, paper=True) == ""
    assert output.read_text(encoding="utf-8") == command.text(
        [handmade(), handmade(objective="undefended")], format, True
    )
    assert "report is in" in capsys.readouterr().err
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_the_format_is_that_of_the_ending_unless_given(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folders[0].parent)
    run(folders, Path("r.json"), None)
    assert json.loads(Path("r.json").read_text())["format"] == "gradreg report"
    run(folders, Path("r.txt"), "md")
    assert Path("r.txt").read_text().startswith("## Table 1")
    run(folders, None, None)
    assert Path("report.html").exists()
    with pytest.raises(ConfigError, match="does not say what to write"):
        run(folders, Path("r.txt"), None)
    assert "report.html" in capsys.readouterr().err


def test_the_page_shows_every_model(folders: list[Path]) -> None:
    path = report(folders, folders[0].parent / "r.html")
    text = path.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html")
    assert "by hand (2)" in text


def test_the_function_takes_evaluations_paths_and_one_of_either(tmp_path: Path) -> None:
    save(handmade(), tmp_path / "saved")
    texts = [
        report(given, tmp_path / "r.json").read_text(encoding="utf-8")
        for given in (handmade(), [handmade()], tmp_path / "saved", str(tmp_path / "saved"), [tmp_path / "saved"])
    ]
    assert len(set(texts)) == 1
    assert json.loads(texts[0])["tables"][0]["key"] == "table-1"


def test_gradreg_report_is_the_function_and_the_package(tmp_path: Path) -> None:
    from gradreg.report import report

    assert gradreg.report is report
    assert gradreg.report(handmade(), tmp_path / "r.md").exists()


def test_figures_go_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = handmade()
    l2 = {"l2": replace(evaluation.threats["l2"], bounded=None)}
    save(replace(evaluation, threats=l2, smoothing=()), tmp_path / "e")
    run([tmp_path / "e"], None, "md", tmp_path / "figures")
    assert "9 figure files are in" in capsys.readouterr().err
    assert len(list((tmp_path / "figures").iterdir())) == 9


def test_a_failed_report_leaves_the_old_one(tmp_path: Path) -> None:
    old = tmp_path / "r.md"
    old.write_text("old")
    with pytest.raises(DataError, match="no finished evaluation"):
        report([tmp_path / "nowhere"], old)
    assert old.read_text() == "old"
    with pytest.raises(DataError, match=r"could not be written to .* choose another place"):
        report(handmade(), old / "r.md")


def test_names_with_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    path = report(renamed(handmade(), "broken \udce9 name"), tmp_path / "r.json")
    assert "udce9" in path.read_bytes().decode("utf-8")


def test_an_unknown_ending_or_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"r\.docx does not say what to write: .*\.html"):
        report(handmade(), tmp_path / "r.docx")
    with pytest.raises(ConfigError, match="There is no format 'xml'"):
        command.text([handmade()], "xml", False)  # type: ignore[arg-type]


def on(evaluation: Evaluation, **changes: object) -> Evaluation:
    return replace(evaluation, data=replace(evaluation.data, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            on(handmade("b"), name="cifar10"),
            "'by hand' was evaluated on mnist5k and 'b' on cifar10, so .* for each data",
        ),
        (on(handmade("b"), classes=("a", "b")), "once with 3 classes .* and once with 2 of .* on the same data"),
        (on(handmade("b"), shape=(3, 4, 4)), r"shape \(1, 4, 4\) and .* shape \(3, 4, 4\)"),
    ],
)
def test_other_data_are_refused_in_one_sentence(other: Evaluation, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as refusal:
        command.text([handmade(), other], "md", False)
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_nothing_to_report_on_is_refused() -> None:
    with pytest.raises(DataError, match="no evaluation to report on"):
        check_comparable([])
    none = replace(handmade(), index=torch.arange(0))
    with pytest.raises(DataError, match="holds no images"):
        check_comparable([none])


def test_other_images_and_other_settings_are_noted_not_refused(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shuffled = replace(handmade("b"), index=handmade().index.flip(0))
    assert check_comparable([handmade(), shuffled]) == []
    chosen = replace(handmade("c"), index=handmade().index + 1)
    quick = replace(handmade("d"), settings=replace(handmade().settings, attacks="quick"))
    notes = check_comparable([handmade(), chosen, quick])
    assert len(notes) == 2
    assert notes[0].startswith("c was examined on other images of mnist5k than by hand")
    assert "by hand: standard; c: standard; d: quick" in notes[1]
    assert notes[0] in command.text([handmade(), chosen], "md", False)
    save(chosen, folders[1])
    run(folders, None, "md")
    assert "other images" in capsys.readouterr().err


def test_models_of_one_name_are_told_apart() -> None:
    names = ["a", "a", "a (2)", "b", "a"]
    distinct = with_distinct_names([handmade(name) for name in names])
    assert [evaluation.subject.name for evaluation in distinct] == ["a", "a (2)", "a (2) (2)", "b", "a (3)"]
    assert with_distinct_names(distinct) == distinct
