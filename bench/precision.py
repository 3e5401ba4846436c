"""`python -m bench precision`: a search in bfloat16 beside one as the model computes, in seconds and in distances."""

from dataclasses import asdict, dataclass
from time import process_time

import torch
from rich.console import Console
from torch import Tensor, nn

from bench.options import PrecisionOptions
from bench.record import plain_table, write_json
from gradreg.attacks import AttackResult, attack
from gradreg.data import Images
from gradreg.data import load as load_data
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName
from gradreg.provenance import machine
from gradreg.runs import load

PRECISIONS = ("model", "bf16")


@dataclass(frozen=True)
class PrecisionRow:
    """One suite in one norm, in both precisions."""

    threat: str
    attacks: str
    seconds: tuple[float, float]
    """Processor time, as the model computes and in bfloat16; the best of the rounds."""
    propagations: tuple[float, float]
    """Per image; those that asked about successes again are among them."""
    median: float
    """Of the distances in bfloat16 over those in full precision, image by image."""
    p90: float
    farther: int
    """Images whose distance is more than 1 % longer in bfloat16."""
    nearer: int
    """Images whose distance is more than 1 % shorter."""
    unverified: int
    """Adversarial images of the search in bfloat16 that the model gets right when it is asked for each alone."""


def compare(model: nn.Module, x: Tensor, y: Tensor, threat: ThreatName, attacks: str, rounds: int) -> PrecisionRow:
    """Both searches in turn, so that what disturbs the machine disturbs both."""
    results: dict[str, AttackResult] = {}
    best = dict.fromkeys(PRECISIONS, float("inf"))
    for _ in range(rounds):
        for precision in PRECISIONS:
            begun = process_time()
            results[precision] = attack(
                model, x, y, threat=threat, attacks=attacks, precision=precision, progress=False
            )
            best[precision] = min(best[precision], process_time() - begun)
    full, low = (results[precision] for precision in PRECISIONS)
    ratio = (low.distance / full.distance)[full.distance > 0].double()
    median, p90 = ratio.quantile(torch.tensor([0.5, 0.9], dtype=torch.float64)).tolist()
    with torch.no_grad():
        alone = torch.cat([model(image[None]) for image in low.adversarial]).argmax(1)
    found = low.success & (low.distance > 0)
    return PrecisionRow(
        threat,
        attacks,
        (best["model"], best["bf16"]),
        (float(full.propagations.double().mean()), float(low.propagations.double().mean())),
        median,
        p90,
        int((ratio > 1.01).sum()),
        int((ratio < 0.99).sum()),
        int((found & (alone == y)).sum()),
    )


def show(options: PrecisionOptions, console: Console) -> list[PrecisionRow]:
    """Print the table, and write the JSON file if one is named."""
    torch.set_num_threads(1)
    model, (x, y) = load(options.network), _images(options)
    with torch.no_grad():
        right = (model(x).argmax(1) == y).nonzero().flatten()[: options.images]
    if len(right) < options.images:
        raise ConfigError(f"images must be at most the {len(right)} that the network classifies correctly.")
    rows = [
        compare(model, x[right], y[right], threat, attacks, options.rounds)
        for attacks in ("quick", "standard")
        for threat in options.norms
    ]
    title = f"{options.network}, {options.images} images, bfloat16 beside full precision"
    headings = ("threat", "attacks", "seconds", "", "propagations", "", "distance", "p90", "farther", "nearer", "false")
    table = plain_table(title, headings, 2)
    for row in rows:
        shown = (*row.seconds, *row.propagations)
        cells = [f"{value:.1f}" for value in shown] + [f"{value:.4f}×" for value in (row.median, row.p90)]
        table.add_row(row.threat, row.attacks, *cells, *map(str, (row.farther, row.nearer, row.unverified)))
    console.print(table)
    where = machine() | {"bf16": torch.cpu._is_avx512_bf16_supported()}
    console.print(where)
    if options.json is not None:
        write_json(options.json, {"options": options.facts(), "machine": where, "rows": [asdict(row) for row in rows]})
    return rows


def _images(options: PrecisionOptions) -> tuple[Tensor, Tensor]:
    part = load_data(options.data, options.data_dir).test
    if not isinstance(part, Images):
        raise ConfigError(f"data must be images in memory, such as cifar10; got {options.data}.")
    most = slice(20 * options.images)
    return part.floats(most), part.labels[most]
