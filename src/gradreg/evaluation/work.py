"""What the stages of an evaluation share: the model, the images, and how processes put their parts together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.classifier import Classifier
from gradreg.evaluation.material import Material
from gradreg.evaluation.options import Options
from gradreg.evaluation.state import State
from gradreg.evaluation.telling import Teller
from gradreg.processes import Processes


@dataclass(frozen=True)
class Work:
    """One evaluation as one process sees it.

    What is shared out is put together by adding: every process fills in its own rows and leaves the others zero. A
    stage that is finished already is the first process's share alone.
    """

    classifier: Classifier
    material: Material
    options: Options
    processes: Processes
    state: State
    teller: Teller

    @property
    def rows(self) -> Tensor:
        """The images that fall to this process."""
        return torch.arange(self.processes.rank, len(self.material.x), self.processes.world)

    def mine(self, stage: str) -> str:
        """The name of a file that no other process writes."""
        return f"{stage}.{self.processes.rank}-of-{self.processes.world}.safetensors"

    def together(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum of all processes' shares, on the CPU."""
        device = self.processes.device
        return {name: self.processes.sum(part.to(device)).cpu() for name, part in parts.items()}

    def agreed(self, finished: bool) -> bool:
        """Whether the first process found the stage finished; the others may see its files later than it does."""
        flag = torch.tensor(int(finished and self.processes.first), device=self.processes.device)
        return bool(self.processes.sum(flag))

    def finish(self, stage: str, value: object) -> None:
        """Save the whole, and only then drop the shares, also those of an earlier try with another number of them."""
        self.state.save(stage, value)
        self.processes.wait()
        for share in self.state.folder.glob(f"{stage}.*-of-*.safetensors"):
            share.unlink(missing_ok=True)
