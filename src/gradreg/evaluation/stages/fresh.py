"""The images of a randomised model under fresh draws, which its fixed draws and the attacks on them never show."""

import torch
from torch import Tensor

from gradreg.attacks.fresh import fresh_answers, fresh_draws_of
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.work import Work
from gradreg.progress import Progress


def fresh(work: Work) -> FreshDraws | None:
    """The answers to the unperturbed images; None for a model that averages no draws."""
    x, y = work.inputs.x, work.inputs.y
    columns = blank(work, len(x))
    if not columns:
        return None

    def fill(columns: dict[str, Tensor], progress: Progress) -> None:
        rows = work.rows.to(x.device)
        for done, part in enumerate(rows.split(1), 1):
            found = fresh_answers(work.classifier, x[part], y[part], x[part], work.options.topk)
            if found is not None:
                enter(columns, part.cpu(), found.wrong.cpu(), found.share.cpu())
            progress(done, len(rows))

    return taken(work, work.per_image("fresh", "fresh draws", columns, fill).values)


def blank(work: Work, n: int) -> dict[str, Tensor]:
    """The columns to be filled in; none for a model that averages no draws."""
    if not fresh_draws_of(work.classifier):
        return {}
    return {"fresh": torch.zeros(n, dtype=torch.bool), "fresh_share": torch.zeros(n)}


def enter(columns: dict[str, Tensor], rows: Tensor, wrong: Tensor, share: Tensor) -> None:
    """Fill in these rows."""
    columns["fresh"][rows], columns["fresh_share"][rows] = wrong, share


def taken(work: Work, columns: dict[str, Tensor]) -> FreshDraws | None:
    """What was filled in."""
    draws = fresh_draws_of(work.classifier)
    return FreshDraws(draws, columns["fresh"], columns["fresh_share"]) if draws else None


def sentence(symbol: str, redrawn: Redrawn) -> str:
    """How much of what was found in a norm holds under fresh draws."""
    return (
        f"The model is randomised and averaged over {redrawn.clean.draws} fixed draws. In {symbol}, "
        f"{int(redrawn.fooled.sum())} of {len(redrawn.fooled)} adversarial images are misclassified under fresh draws "
        "too; robust accuracy counts them all."
    )
