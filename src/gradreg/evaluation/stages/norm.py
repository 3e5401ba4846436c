"""What is recorded of a norm that has no short name, and whether work was begun in the same one."""

from gradreg.errors import ConfigError
from gradreg.evaluation.record import OwnNorm
from gradreg.evaluation.work import Work
from gradreg.norms import THREATS, Threat, probe


def described(work: Work, norm: Threat) -> OwnNorm | None:
    """The norm in words and numbers; refused if the folder was begun in another one of the same name."""
    if norm.name in THREATS:
        return None
    kind = f"{type(norm).__module__}.{type(norm).__qualname__}"
    now = OwnNorm(norm.symbol, norm.dual, kind, probe(norm, work.inputs.x))
    before: OwnNorm = work.ledger.once(f"norm.{norm.name}", OwnNorm, lambda: now)
    if not now.same_as(before):
        raise ConfigError(
            f"{norm.name} computes other norms than when the evaluation in {work.ledger.folder} was begun, though its "
            "attributes are the same: choose another folder, and keep in attributes what the norm depends on."
        )
    return now
