"""The table of the networks that the package carries, made from their folders."""

import json
from pathlib import Path

import pytest

import gradreg
from docs.make.networks import networks_table
from gradreg.report.tables.formats import rows_only
from gradreg.runs import networks


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A shipped network, evaluated against two threats and by AutoAttack in one of them."""
    made = tmp_path / "digits"
    made.mkdir()
    for name in networks.FILES:
        (made / name).write_bytes((networks.folder("cifar10-linf") / name).read_bytes())
    entries = {
        "linf": {"eps": "8/255", "clean_acc": "75.25", "reported": "43.10", "autoattack_acc": None},
        "l2": {"eps": "0.5", "clean_acc": "75.25", "reported": "50.00", "autoattack_acc": "49.90"},
    }
    (made / networks.ENTRIES).write_text(json.dumps(entries))
    return made


def test_a_row_for_each_threat_says_what_its_files_do(place: Path) -> None:
    table = networks_table([place])
    headings = [column.heading for column in table.columns]
    first, second = (dict(zip(headings, row.cells, strict=True)) for row in table.rows)
    assert [row.name for row in table.rows] == ["digits", "digits"]
    assert (first["attack"].text, second["attack"].text) == ("l∞ 8/255", "l2 0.5")
    assert (first["clean"].text, first["robust"].text, first["AutoAttack"].value) == ("75.25 %", "43.10 %", None)
    assert (second["robust"].value, second["AutoAttack"].text) == (50.0, "49.90 %")
    weights = sum(weight.numel() for weight in gradreg.load("cifar10-linf").parameters())
    assert first["parameters"].text == f"{weights:,}"
    assert first["size"].value == (place / networks.WEIGHTS).stat().st_size
    last = json.loads((place / networks.METRICS).read_text().splitlines()[-1])
    assert (first["epochs"].text, first["epochs"].note) == (str(last["epoch"]), f"{last['hours']:.2f} h")


def test_every_network_of_the_package_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "networks.md").read_text("utf-8")
    assert rows_only(networks_table([networks.folder(name) for name in networks.names()])) in page
