"""`python -m bench band`: learn the band on some networks and images, and judge it on others by AutoAttack."""

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from functools import partial

import torch
from rich.console import Console
from torch import Tensor, nn

from bench.band import JudgedRow, LearnedRow, Overestimates, joined, judge, learned, overestimates
from bench.contenders import half_radius
from bench.kinds import KINDS, fresh, trained
from bench.networks import kept
from bench.options import BandOptions
from bench.peers import version
from bench.record import plain_table, write_json
from gradreg.attacks import AttackOptions
from gradreg.attacks.band import BANDS, Band
from gradreg.data import Images, load
from gradreg.errors import ConfigError
from gradreg.fingerprints import images_key
from gradreg.ledger import Ledger
from gradreg.provenance import machine

# Images that choose the radius of a network, before those that are judged.
_OTHERS = 60
# Images that a network is trained on, at most.
_MOST = 20_000
# Images that are learned on together.
_TOGETHER = 100
# The fraction of the training images that no network is trained on: to learn the band on, other ones for each network.
_RESERVE = 0.2


@dataclass(frozen=True)
class Found:
    """All figures of the measurement."""

    bands: dict[str, Band]
    learned: list[LearnedRow]
    judged: list[JudgedRow]


def show(options: BandOptions, console: Console) -> Found:
    """Print the rows as they are known, and write the JSON file last if one is named."""
    torch.set_num_threads(1)
    if options.judged and version("autoattack") is None:
        raise ConfigError("The band is judged by AutoAttack: pip install pyautoattack, or pass --judged 0.")
    kinds = options.chosen(KINDS)
    learning = list(_learning(options, console))
    rows = [row for row, _ in learning]
    bands: dict[str, Band] = {
        threat: learned(torch.cat([ratio for row, ratio in learning if row.threat == threat]))
        for threat in options.norms
    }
    _print(console, "distance after the first attacks over the best known", rows)
    console.print(f"learned: {bands}\nin use: {BANDS}")
    judged = [row for kind in kinds for row in _judging(options, kind, console)] if options.judged else []
    _print(console, "images left early, beside AutoAttack", judged)
    found = Found(bands, rows, judged)
    if options.json is not None:
        about = {"options": options.facts(), "machine": machine(), "autoattack": version("autoattack")}
        write_json(options.json, about | asdict(found))
    return found


def _learning(options: BandOptions, console: Console) -> Iterator[tuple[LearnedRow, Tensor]]:
    for name in options.sources:
        first, _, reserve = parts(_images(name, options)[0])
        for kind, some in zip(KINDS, torch.arange(len(reserve)).tensor_split(len(KINDS)), strict=True):
            with _ledger(options, f"learned-{name}-{kind}", first) as ledger:
                model = _network(ledger, kind, first, options.seed, options.steps)
                x, y, accuracy = right(model, reserve.subset(some), options.images)
                for threat in options.norms:
                    found = []
                    for rows in torch.arange(len(x)).split(_TOGETHER):
                        console.print(f"{name}, {kind}, {threat}: learning on {_spoken(rows, len(x))}")
                        compute = partial(overestimates, model, x[rows], y[rows], threat, options.seed)
                        found.append(ledger.once(_part(threat, rows), Overestimates, compute).ratio)
                    ratio = torch.cat(found)
                    known = ratio[ratio.isfinite()].double()
                    middle, p99 = known.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
                    figures = (middle, p99, float(known.max()), len(x) - len(known))
                    yield LearnedRow(name, kind, threat, len(x), accuracy, *figures), ratio


def _judging(options: BandOptions, kind: str, console: Console) -> Iterator[JudgedRow]:
    """Another network of that kind, trained on other images from another seed."""
    train, test = _images(options.judge, options)
    _, second, _ = parts(train)
    suites = str(
        [(threat, BANDS[threat].factor, AttackOptions(threat=threat, eps=1.0).plan()) for threat in options.norms]
    )
    with _ledger(options, f"judged-{options.judge}-{kind}", second, suites=suites) as ledger:
        model = _network(ledger, kind, second, options.seed + 1, options.steps)
        x, y, _ = right(model, test, options.judged + _OTHERS)
        for threat in options.norms:
            eps = half_radius(model, x[:_OTHERS], y[:_OTHERS], threat, options.seed)
            found = []
            for rows in torch.arange(_OTHERS, len(x)).split(options.chunk):
                console.print(f"{kind}, {threat} {eps}: judging {_spoken(rows, len(x))}")
                compute = partial(
                    judge, model, x[rows], y[rows], network=kind, threat=threat, eps=eps, seed=options.seed
                )
                found.append(ledger.once(_part(threat, rows), JudgedRow, compute))
            yield joined(found)


def parts(train: Images) -> tuple[Images, Images, Images]:
    """Images to train the networks on that are learned from, those that are judged, and images to learn on."""
    half = int((1 - _RESERVE) * len(train)) // 2
    most = min(half, _MOST)
    return train.subset(slice(most)), train.subset(slice(half, half + most)), train.subset(slice(2 * half, None))


def right(model: nn.Module, images: Images, most: int) -> tuple[Tensor, Tensor, float]:
    """The first images that the network classifies correctly, and its accuracy."""
    x, y = images.floats(), images.labels
    with torch.no_grad():
        hit = torch.cat([model(some) for some in x.split(500)]).argmax(1) == y
    rows = hit.nonzero().flatten()[:most]
    return x[rows], y[rows], float(hit.double().mean())


def _part(threat: str, rows: Tensor) -> str:
    return f"{threat}-{int(rows[0])}-{len(rows)}"


def _spoken(rows: Tensor, of: int) -> str:
    return f"images {int(rows[0]) + 1} to {int(rows[-1]) + 1} of {of}"


def _network(ledger: Ledger, kind: str, images: Images, seed: int, steps: int) -> nn.Module:
    made = kept(ledger, "network", partial(fresh, kind, seed), partial(trained, kind, images, seed, steps))
    return made.requires_grad_(False)


def _ledger(options: BandOptions, name: str, images: Images, **more: str) -> Ledger:
    about = {"seed": str(options.seed), "steps": str(options.steps), "images": images_key(images.pixels, images.labels)}
    return Ledger(None if options.work is None else options.work / name, about | more)


def _images(name: str, options: BandOptions) -> tuple[Images, Images]:
    data = load(name, options.data_dir)
    if not isinstance(data.train, Images) or not isinstance(data.test, Images) or data.train.pixels.shape[1:] != _SHAPE:
        raise ConfigError(f"data must be grey images of 28x28 pixels, such as fashion-mnist; got {name}.")
    return data.train, data.test


_SHAPE = (1, 28, 28)


def _print(console: Console, title: str, rows: list[LearnedRow] | list[JudgedRow]) -> None:
    if rows:
        table = plain_table(title, tuple(asdict(rows[0])), 2)
        for row in rows:
            table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in astuple(row)))
        console.print(table)
