"""What the stages of an evaluation share: the model, the images, the ledger, and how processes divide the work."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gradreg.classifier import Classifier
from gradreg.errors import DataError
from gradreg.evaluation.inputs import Inputs
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.reporting import ConsoleReporter
from gradreg.ledger import Ledger
from gradreg.processes import Processes
from gradreg.progress import Progress


@dataclass(frozen=True)
class _Columns:
    """One value per image for everything that a stage found, and the seconds it took."""

    values: dict[str, Tensor]
    seconds: float


@dataclass(frozen=True)
class Work:
    """One evaluation as one process sees it."""

    classifier: Classifier
    inputs: Inputs
    options: EvaluationOptions
    processes: Processes
    ledger: Ledger
    reporter: ConsoleReporter

    @property
    def rows(self) -> Tensor:
        """The images that this process evaluates."""
        return torch.arange(self.processes.rank, len(self.inputs.x), self.processes.world)

    def own(self, stage: str) -> str:
        """The name of a file for unfinished work that no other process writes."""
        return f"{stage}.{self.processes.rank}-of-{self.processes.world}.safetensors"

    def per_image(
        self,
        stage: str,
        title: str,
        blank: dict[str, Tensor],
        fill: Callable[[dict[str, Tensor], Progress], None],
        late: tuple[str, ...] = (),
    ) -> _Columns:
        """The columns of a stage, as the ledger has them or filled in by all processes together.

        Processes are put together by adding: each fills in its own rows of `blank` and leaves the others zero. A stage
        that is finished already is the first process's contribution alone. Stages that were finished before there were
        the `late` columns have them blank.
        """
        done: _Columns | None = self.ledger.load(stage, _Columns) if self.processes.first else None
        if done is not None:
            done.values.update({name: blank[name] for name in late if name not in done.values})
            _check_columns(done, blank, self.ledger.folder, stage)
        finished, timer = self.agreed(done is not None), self.ledger.timer(stage)
        if not finished:
            with self.reporter.bar(title) as progress:
                fill(blank, timer.watching(progress))
        device = self.processes.device
        mine = blank if done is None else done.values
        whole = {name: self.processes.sum(mine[name].to(device)).cpu() for name in blank}
        found = _Columns(whole, timer.seconds if done is None else done.seconds)
        if not finished:
            self.ledger.save(stage, found)
            # Only then drop unfinished work, also that of an earlier try with another number of processes.
            self.processes.wait()
            self.ledger.drop(f"{stage}.*-of-*.safetensors")
        return found

    def agreed(self, finished: bool) -> bool:
        """Whether the first process found a stage finished; the others may see its files later than it does."""
        flag = torch.tensor(int(finished and self.processes.first), device=self.processes.device)
        return bool(self.processes.sum(flag))


def _check_columns(found: _Columns, blank: dict[str, Tensor], folder: Path | None, stage: str) -> None:
    """Refuse a kept stage of other columns than this evaluation has."""
    described = [
        {name: (column.shape, column.dtype) for name, column in each.items()} for each in (found.values, blank)
    ]
    if described[0] != described[1] or not 0 <= found.seconds < float("inf"):
        raise DataError(f"The stage {stage} in {folder} is not of these images; delete it to compute it again.")
