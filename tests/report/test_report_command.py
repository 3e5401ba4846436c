"""`gradreg report` and `gradreg.report`: from evaluation folders to files, and what they refuse."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gradreg
from gradreg.cli import main
from gradreg.errors import ConfigError, DataError, StorageError
from gradreg.evaluation.files import save
from gradreg.evaluation.record import Evaluation
from gradreg.report import report, writing
from gradreg.report.comparison import Comparison
from handmade import handmade, renamed


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    places = [tmp_path / "one", tmp_path / "two"]
    for place, objective in zip(places, ("gradient", "undefended"), strict=True):
        save(handmade(objective=objective), place)
    return places


def run(folders: list[Path], *options: str) -> None:
    main(["report", *map(str, folders), *options])


def test_a_text_report_goes_to_stdout_unwrapped_and_what_is_said_to_stderr(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run(folders, "--format", "csv")
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert {row["row"] for row in rows if row["table"] == "table-1"} == {"by hand", "by hand (2)"}
    assert said.err == ""


@pytest.mark.parametrize("format", ["md", "tex", "csv", "json"])
def test_every_format_is_written_to_a_file(
    folders: list[Path], format: writing.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    output = folders[0].parent / "deep" / f"report.{format}"
    run(folders, "-o", str(output), "--paper")
    comparison = Comparison.of([handmade(), handmade(objective="undefended")])
    assert output.read_text(encoding="utf-8") == writing.render(comparison, format, True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "report is in" in said.err
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_the_format_is_that_of_the_ending_unless_given(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folders[0].parent)
    run(folders, "-o", "r.json")
    assert json.loads(Path("r.json").read_text())["format"] == "gradreg report"
    run(folders, "-o", "r.txt", "--format", "md")
    assert Path("r.txt").read_text().startswith("## Robust accuracy")
    run(folders)
    assert Path("report.html").exists()
    assert "report.html" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"must end in one of .*\.html.*; got r\.txt"):
        writing.format_of(Path("r.txt"))


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
    assert json.loads(texts[0])["tables"][0]["key"] == "robust-accuracy"


def test_gradreg_report_is_the_function_and_the_package(tmp_path: Path) -> None:
    from gradreg.report import report

    assert gradreg.report is report
    assert gradreg.report(handmade(), tmp_path / "r.md").exists()


def test_figures_go_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = handmade()
    l2 = {"l2": replace(evaluation.threats["l2"], bounded=None)}
    save(replace(evaluation, threats=l2, smoothing=()), tmp_path / "e")
    run([tmp_path / "e"], "--format", "md", "--figures", str(tmp_path / "figures"))
    assert "9 figure files are in" in capsys.readouterr().err
    assert len(list((tmp_path / "figures").iterdir())) == 9


def test_a_failed_report_leaves_the_old_one(tmp_path: Path) -> None:
    old = tmp_path / "r.md"
    old.write_text("old")
    with pytest.raises(DataError, match="no finished evaluation"):
        report([tmp_path / "nowhere"], old)
    assert old.read_text() == "old"
    with pytest.raises(StorageError, match=r"could not be written .* choose another place"):
        report(handmade(), old / "r.md")


@pytest.mark.parametrize("options", [[], ["--diff"], ["--format", "md"]])
@pytest.mark.parametrize("name", ["evaluation.json", "images.csv", "gallery.safetensors", "config.toml", "link.json"])
def test_a_report_is_not_written_over_what_it_is_made_of(name: str, options: list[str], folders: list[Path]) -> None:
    (folders[0] / "link.json").symlink_to("evaluation.json")
    before = {path.name: path.read_bytes() for path in folders[0].iterdir()}
    if name.endswith((".safetensors", ".toml")):
        options = [*options, "--format", "csv"]
    with pytest.raises(SystemExit):
        run(folders, "-o", str(folders[0] / name), *options)
    assert {path.name: path.read_bytes() for path in folders[0].iterdir()} == before
    with pytest.raises(ConfigError, match=r"A report must not be written to .*: evaluation\.json is a file of evaluat"):
        report(folders, folders[0] / "evaluation.json")


def test_names_with_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    path = report(renamed(handmade(), "broken \udce9 name"), tmp_path / "r.json")
    assert "udce9" in path.read_bytes().decode("utf-8")


def test_an_unknown_ending_or_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in one of .*\.html.*; got .*r\.docx"):
        report(handmade(), tmp_path / "r.docx")
    with pytest.raises(ConfigError, match=r"format must be one of html, .*; got 'xml'"):
        writing.render(Comparison.of([handmade()]), "xml")  # type: ignore[arg-type]


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
        Comparison.of([handmade(), other])
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


def test_nothing_to_report_on_is_refused() -> None:
    with pytest.raises(DataError, match="no evaluation to report on"):
        Comparison.of([])
    none = replace(handmade(), index=torch.arange(0))
    with pytest.raises(DataError, match="must hold at least one image; got 0"):
        Comparison.of([none])


def test_other_images_and_other_settings_are_noted_not_refused(
    folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shuffled = replace(handmade("b"), index=handmade().index.flip(0))
    assert Comparison.of([handmade(), shuffled]).notes == ()
    chosen = replace(handmade("c"), index=handmade().index + 1)
    quick = replace(handmade("d"), settings=replace(handmade().settings, attacks="quick"))
    notes = Comparison.of([handmade(), chosen, quick]).notes
    assert len(notes) == 2
    assert notes[0].startswith("c was evaluated on other images of mnist5k than by hand")
    assert "by hand: standard; c: standard; d: quick" in notes[1]
    assert notes[0] in writing.render(Comparison.of([handmade(), chosen]), "md")
    save(chosen, folders[1])
    run(folders, "--format", "md")
    assert "other images" in capsys.readouterr().err


def test_models_of_one_name_are_told_apart() -> None:
    names = ["a", "a", "a (2)", "b", "a"]
    comparison = Comparison.of([handmade(name) for name in names])
    assert comparison.names == ("a", "a (2)", "a (2) (2)", "b", "a (3)")
    assert Comparison.of(comparison.evaluations).names == comparison.names


def test_threats_and_radii_are_those_of_the_data_in_the_usual_order() -> None:
    comparison = Comparison.of([on(handmade(), radii={}, name="mnist5k")])
    assert comparison.threats == ("linf", "l2") == tuple(comparison.evaluations[0].threats)
    assert (comparison.radii("linf"), comparison.main_radius("l2")) == ((0.05, 0.1), 1.5)
