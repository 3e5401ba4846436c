"""The page of commands has every command, and every option says what it does."""

from pathlib import Path

from docs.site.commands import Option, help_of, names_in
from gradreg.cli import commands

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")


def test_every_command_is_on_the_page() -> None:
    listed = names_in(PAGE)
    assert len(listed) == len(set(listed))
    assert {name.split()[0] for name in listed} == {name for name, _, _ in commands()}
    for name, _, _ in commands():
        inner = help_of(name).usage.rpartition("{")[2]
        if name == "data":
            assert {f"data {each}" for each in inner.rstrip("}").split(",")} == {
                each for each in listed if each.startswith("data")
            }


def test_every_option_says_what_it_does() -> None:
    for name in names_in(PAGE):
        shown = help_of(name)
        assert len(shown.about.split()) >= 3, name
        for option in shown.options:
            assert len(option.meaning.split()) >= 3, f"gradreg {name} {option.name} has no explanation"


def test_options_are_read_as_they_are_printed() -> None:
    options = help_of("data resize").options
    names = ["SOURCE", "DESTINATION", "--size INT", "--quality INT", "--workers INT"]
    assert [option.name for option in options] == names
    assert options[3] == Option(
        "--quality INT", "Of JPEG copies, 1 to 95; copies of PNG and other lossless files are PNG.", "default: 90"
    )
