"""The training loop. What it does next depends on the settings and the position alone, so any can be resumed."""

from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gradreg.errors import Interrupted, RunError, TrainingFailed
from gradreg.processes import Processes
from gradreg.provenance import commit, hardware
from gradreg.runs.checkpoints import State
from gradreg.runs.directory import RunDirectory
from gradreg.runs.settings import Settings
from gradreg.training.monitors import Reading, examine
from gradreg.training.reporting import Reporter
from gradreg.training.signals import StopRequest, stop_requests
from gradreg.training.sources import Source
from gradreg.training.step import Learner
from gradreg.training.watch import Trouble, newest_is_best, not_finite, trouble

ROLLBACKS = 3
ROLLBACK_RATE = 0.5
# Several processes, or an accelerator that would have to be waited for, are asked this often whether all is well.
CHECK_EVERY = 10


@dataclass
class Position:
    """How far a run has come."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch that are done."""
    seconds: float = 0.0
    """Spent in steps and waiting for batches; examinations are not counted."""
    rollbacks: int = 0
    best: int | None = None
    """Which of the readings is of the epoch in best.safetensors."""
    readings: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """Trains `model` in place, and keeps its run directory up to date."""

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        settings: Settings,
        processes: Processes,
        run: RunDirectory,
        reporter: Reporter,
    ) -> None:
        self.learner = Learner(model, settings, processes)
        self.source, self.settings, self.processes = source, settings, processes
        self.run, self.reporter = run, reporter
        self.at = Position()
        self.images_per_second = 0.0
        self.saved_at = perf_counter()
        alone_on_host = processes.world == 1 and processes.device.type == "cpu"
        self.check_every = 1 if alone_on_host else CHECK_EVERY

    def resume(self) -> None:
        """Go to the newest checkpoint that can be read; to the start if the run was killed before its first one."""
        paths = self.run.generations.paths()
        state, passed_over = next(self.run.generations.sound(), (None, []))
        if state is None and paths:
            raise RunError(f"None of the {len(paths)} checkpoints in {self.run.folder} can be read: start a new run.")
        for sentence in passed_over:
            self.reporter.note(f"{sentence} The checkpoint before it is used.")
        if state is not None:
            self._restore(state)
        self.processes.wait()
        if self.processes.first:
            self.run.sweep()
            self.run.rewind_metrics(self.at.epoch)

    def train(self) -> None:
        """To the end of the last epoch, or to the first trouble or signal."""
        epochs = self.settings.epochs
        self.reporter.begin(sum(self.source.steps(epoch) for epoch in range(epochs)), self.at.step)
        self.learner.model.train()
        with stop_requests() as request:
            while self.at.epoch < epochs:
                found = self._epoch(request) or self._finish_epoch()
                if found:
                    self._deal_with(found)
        self.processes.wait()

    def _epoch(self, request: StopRequest) -> Trouble | None:
        """The batches of this epoch that are still to be done."""
        at, steps, images = self.at, self.source.steps(self.at.epoch), 0
        began = last = perf_counter()
        for x, y in self.source.batches(at.epoch, at.batch):
            epoch = at.epoch + at.batch / steps
            key = (self.settings.seed, at.rollbacks, at.step)
            outcome = self.learner.step(x, y, key, at.step, epoch, self._rate_factor(epoch))
            at.step += 1
            at.batch += 1
            images += len(x) * self.processes.world
            now = perf_counter()
            at.seconds, last = at.seconds + now - last, now
            if self.reporter.wants_loss:
                self.reporter.step(at.step, at.epoch, outcome.loss.item(), images / (now - began))
            if found := self._check(request):
                return found
        self.images_per_second = images / max(perf_counter() - began, 1e-9)
        return None

    def _rate_factor(self, epoch: float) -> float:
        return self.settings.schedule(epoch, self.settings.epochs) * ROLLBACK_RATE**self.at.rollbacks

    def _check(self, request: StopRequest) -> Trouble | None:
        """Between steps: is all well, has somebody asked for the end, is it time to save?"""
        if self.at.step % self.check_every:
            return None
        bad_steps = self.learner.bad_steps
        news = torch.stack([bad_steps, torch.full_like(bad_steps, request.signal)])
        bad, signal = self.processes.largest(news).tolist()
        if bad:
            return not_finite(self.at.epoch, f"step {self.at.step}")
        overdue = perf_counter() - self.saved_at >= 60 * self.settings.save_minutes
        if signal or overdue:
            self._save(required=bool(signal))
        if signal:
            self.processes.wait()
            where = f"epoch {self.at.epoch + 1}, step {self.at.step}"
            raise Interrupted(f"Stopped in {where} and saved: continue with --resume.", int(signal))
        return None

    def _finish_epoch(self) -> Trouble | None:
        """Examine, write down, and move on to the next epoch."""
        at = self.at
        reading = examine(
            self.learner.judged, self.source.held_out(at.epoch, self.processes), self.settings.probe, self.processes
        )
        at.readings.append(asdict(reading))
        readings = [Reading(**entry) for entry in at.readings]
        is_best, found = newest_is_best(readings, at.best), trouble(readings)
        steps = self.source.steps(at.epoch)
        at.epoch, at.batch = at.epoch + 1, 0
        row = {
            "epoch": at.epoch,
            "step": at.step,
            "lr": self.settings.optimizer.lr * self._rate_factor(at.epoch - 1 / steps),
            **self.learner.means(),
            **{name: value for name, value in asdict(reading).items() if value is not None},
            "best": is_best,
            "rollbacks": at.rollbacks,
            "images_per_second": self.images_per_second,
            "hours": at.seconds / 3600,
            # Of every epoch, since a run may be continued by other code and elsewhere.
            "commit": commit(),
            "machine": hardware(self.processes.device),
        }
        self.learner.sums = {}
        if self.processes.first:
            self._write_down(row, best=is_best and found is None)
        if found is None:
            self._save(required=at.epoch == self.settings.epochs)
        return found

    def _write_down(self, row: dict[str, Any], *, best: bool) -> None:
        weights = self.learner.judged.state_dict()
        try:
            self.run.add_metrics(row)
            self.run.save_weights("last", weights, row)
            if best:
                self.run.save_weights("best", weights, row)
                self.at.best = len(self.at.readings) - 1
                if "rollback" in (self.settings.on_divergence, self.settings.on_overfitting):
                    self.run.save_rollback(self._state())
        except RunError as error:
            self.reporter.note(f"{error} Training goes on, with the weights of the epoch before.")
        self.reporter.epoch(row, self.settings.epochs)

    def _save(self, *, required: bool, alone: bool = False) -> None:
        """A checkpoint, unless the weights are spoilt already: the one before is worth more."""
        if not self.processes.first or not self.learner.is_finite():
            return
        try:
            self.run.generations.save(self._state(), alone=alone)
        except RunError as error:
            if required:
                raise
            self.reporter.note(f"{error} Training goes on, with the checkpoint before.")
        self.saved_at = perf_counter()

    def _state(self) -> State:
        return State(self.learner.tensors(), asdict(self.at))

    def _restore(self, state: State) -> None:
        self.learner.load(state.tensors)
        self.at = Position(**state.numbers)

    def _deal_with(self, found: Trouble) -> None:
        """As the settings say."""
        policy = self.settings.on_divergence if found.kind == "divergence" else self.settings.on_overfitting
        if policy == "ignore":
            self.reporter.note(found.sentence)
            self._save(required=False)
            return
        self.processes.wait()
        state = self.run.rollback() if policy == "rollback" and self.at.rollbacks < ROLLBACKS else None
        if state is None:
            raise TrainingFailed(found.sentence)
        rollbacks = self.at.rollbacks + 1
        self._restore(state)
        self.at.rollbacks = rollbacks
        self.reporter.note(f"{found.sentence} Back to epoch {self.at.epoch}, at half the learning rate.")
        if self.processes.first:
            self.run.rewind_metrics(self.at.epoch)
        self._save(required=True, alone=True)
        self.processes.wait()
