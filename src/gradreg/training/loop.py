"""The training loop. Each step depends on the settings and the position alone, so that a run can be resumed."""

from dataclasses import asdict
from time import perf_counter
from typing import Any

import torch
from torch import nn

from gradreg.checks.scalars import shown
from gradreg.errors import Interrupted, RunError, StorageError, TrainingFailed
from gradreg.processes import Processes
from gradreg.provenance import commit, hardware
from gradreg.runs.checkpoints import State
from gradreg.runs.directory import RunDirectory
from gradreg.runs.settings import Settings
from gradreg.stopwatch import Stopwatch, noticing_stops
from gradreg.training.begun import Begun, check_begun
from gradreg.training.callbacks import Callbacks
from gradreg.training.listening import Loggers
from gradreg.training.measure import Measure
from gradreg.training.monitors import HeldOutMetrics, evaluate_held_out
from gradreg.training.position import ROLLBACKS, Position, check_step, position_in, without_checkpoint
from gradreg.training.records import Records
from gradreg.training.reporting import Reporter
from gradreg.training.signals import StopRequest, stop_requests
from gradreg.training.sources import Source
from gradreg.training.step import Learner
from gradreg.training.watch import Failure, diverged, find_failure, newest_is_best

_ROLLBACK_RATE = 0.5
# Steps between checks for divergence and signals where a check waits for other processes or an accelerator.
_CHECK_EVERY = 10


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
        loggers: Loggers,
        callbacks: Callbacks,
        measure: Measure | None = None,
        begun: Begun | None = None,
    ) -> None:
        """`begun`: what a resumed run must have been begun with too."""
        self.learner, self.measure = Learner(model, settings, processes, measure), measure
        self.source, self.settings, self.processes = source, settings, processes
        self.run, self.records, self.reporter = run, Records(run), reporter
        self.loggers, self.callbacks = loggers, callbacks
        self.position, self.begun = Position(), dict(begun or {})
        self.images_per_second = 0.0
        self.saved_at = perf_counter()
        alone_on_host = processes.world == 1 and processes.device.type == "cpu"
        self.check_every = 1 if alone_on_host else _CHECK_EVERY

    def resume(self) -> None:
        """Restore the newest readable checkpoint; start over if the run was killed before its first one."""
        finished = len(self.run.metrics())  # damage to them is none of the checkpoints
        for error in self.run.generations.restore(self._restore):
            self.reporter.note(f"{error} The checkpoint before it is used.")
        if not self.run.generations.paths():
            self.position = without_checkpoint(self.run, self.settings.epochs)
        elif finished < self.position.epoch:
            raise RunError(
                f"{self.run.folder} must have metrics of the {self.position.epoch} epochs that its checkpoint says are "
                f"finished; got {finished}: restore its metrics.jsonl, or start a new run."
            )
        self.processes.wait()
        if self.processes.first:
            self.run.rewind_metrics(self.position.epoch)
            self.run.rewind_steps(self.position.step)

    def train(self) -> None:
        """Train to the end of the last epoch, or to the first failure or signal."""
        epochs = self.settings.epochs
        self.reporter.begin(sum(self.source.steps(epoch) for epoch in range(epochs)), self.position.step)
        self.loggers.begin(self.run.config(), self.position.epoch)
        self.learner.model.train()
        with noticing_stops(), stop_requests() as request:
            while self.position.epoch < epochs:
                found = self._epoch(request) or self._finish_epoch()
                if found:
                    self._handle_failure(found)
                if self._asked_to_stop():
                    break
        self.processes.wait()

    def _epoch(self, request: StopRequest) -> Failure | None:
        """Train on the remaining batches of this epoch."""
        at, steps, images = self.position, self.source.steps(self.position.epoch), 0
        watch = Stopwatch()
        for x, y in self.source.batches(at.epoch, at.batch):
            epoch = at.epoch + at.batch / steps
            key = (self.settings.seed, at.rollbacks, at.step)
            factor = self._rate_factor(epoch)
            outcome = self.learner.step(x, y, key, at.step, epoch, factor)
            at.step += 1
            at.batch += 1
            images += len(x) * self.processes.world
            at.seconds += watch.lap()
            loss = outcome.loss.item() if self.reporter.wants_loss else None
            self.reporter.step(at.step, at.epoch, loss, images / max(watch.seconds, 1e-9))
            if self.settings.log_steps and (at.step - 1) % self.settings.log_steps == 0 and self.processes.first:
                self.records.add_step(at.step, at.epoch + 1, outcome.loss, outcome.scalars)
            if self.callbacks.sees_steps:
                rate, scalars = self.settings.optimizer.lr * factor, outcome.scalars
                self.callbacks.step(at.step, at.epoch + 1, rate, outcome.loss, scalars, self.learner.model)
            if found := self._check(request):
                return found
        self.images_per_second = images / max(watch.seconds, 1e-9)
        return None

    def _rate_factor(self, epoch: float) -> float:
        return self.settings.schedule(epoch, self.settings.epochs) * _ROLLBACK_RATE**self.position.rollbacks

    def _check(self, request: StopRequest) -> Failure | None:
        """Between steps: check for divergence, for signals, and whether a checkpoint is due."""
        if self.position.step % self.check_every:
            return None
        nonfinite_losses = self.learner.nonfinite_losses
        status = torch.stack([nonfinite_losses, torch.full_like(nonfinite_losses, request.signal)])
        bad, signal = self.processes.largest(status).tolist()
        if bad:
            return diverged(self.position.epoch, f"step {self.position.step}")
        overdue = perf_counter() - self.saved_at >= 60 * self.settings.save_minutes
        if signal or overdue:
            self._save(required=bool(signal))
        if signal:
            self.processes.wait()
            where = f"epoch {self.position.epoch + 1}, step {self.position.step}"
            raise Interrupted(f"Stopped in {where} and saved: continue with --resume.", int(signal))
        return None

    def _finish_epoch(self) -> Failure | None:
        """Evaluate on the held-out images, record the epoch, and move on to the next one."""
        at = self.position
        metrics = evaluate_held_out(
            self.learner.eval_model,
            self.source.held_out(at.epoch, self.processes),
            self.settings.probe,
            self.processes,
            self.measure,
        )
        at.readings.append(asdict(metrics))
        history = [HeldOutMetrics(**entry) for entry in at.readings]
        is_best, found = newest_is_best(history, at.best), find_failure(history)
        steps = self.source.steps(at.epoch)
        at.epoch, at.batch = at.epoch + 1, 0
        row = {
            "epoch": at.epoch,
            "step": at.step,
            "lr": self.settings.optimizer.lr * self._rate_factor(at.epoch - 1 / steps),
            **self.learner.means(),
            **{name: value for name, value in asdict(metrics).items() if value is not None},
            "best": is_best,
            "rollbacks": at.rollbacks,
            "images_per_second": self.images_per_second,
            "hours": at.seconds / 3600,
            # For every epoch, since a run may be resumed by another version on another machine.
            "commit": commit(),
            "machine": hardware(self.processes.device),
        }
        self.learner.sums = {}
        if self.processes.first:
            self._record_epoch(row, best=is_best and found is None)
            self._save(required=at.epoch == self.settings.epochs, checkpoint=found is None)
            # Only then, so that nothing is lost if nobody listens any more.
            self.reporter.epoch(row, self.settings.epochs)
            self.loggers.log(row, at.epoch)
        self.callbacks.epoch(at.step, at.epoch, row, self.learner.eval_model, self.learner.model)
        return found

    def _asked_to_stop(self) -> bool:
        """Whether a callback of any process asked to stop, after an epoch."""
        asked = torch.tensor(int(self.callbacks.asked_to_stop), device=self.processes.device)
        if not self.processes.largest(asked):
            return False
        self.reporter.note(f"A callback ended training after epoch {self.position.epoch}.")
        return True

    def _record_epoch(self, row: dict[str, Any], *, best: bool) -> None:
        if best:
            self.position.best = len(self.position.readings) - 1
        returns = best and "rollback" in (self.settings.on_divergence, self.settings.on_overfitting)
        weights = self.learner.eval_model.state_dict()
        self.records.add(row, weights, best=best, rollback=self._state() if returns else None)

    def _save(self, *, required: bool, only: bool = False, checkpoint: bool = True) -> None:
        """Write what epochs left and a checkpoint, unless the weights are not finite: then the previous one is kept.

        A checkpoint comes last: it never says that an epoch is done whose metrics and weights are not on the disk.
        """
        if not self.processes.first:
            return
        try:
            self.records.settle()
            if checkpoint and self.learner.is_finite():
                self.run.generations.save(self._state(), only=only)
        except StorageError as error:
            if required:
                raise
            self.reporter.note(f"{error} Training goes on, and tries again later.")
        self.saved_at = perf_counter()

    def _state(self) -> State:
        tensors = self.learner.tensors()
        about = {"of": self.run.key, "tensors": len(tensors), "begun": self.begun}
        return State(tensors, {**asdict(self.position), **about})

    def _restore(self, state: State) -> None:
        """Go back to a checkpoint of this run; another one is refused before anything is changed."""
        numbers = dict(state.numbers)
        if numbers.pop("of", self.run.key) != self.run.key:  # checkpoints of before it was noted have none
            raise RunError("It belongs to another recipe than the config.toml beside it, or that was changed since.")
        held = numbers.pop("tensors", len(state.tensors))  # nor do they say how many tensors they have
        if held != len(state.tensors):
            raise RunError(f"It must hold {shown(held)} tensors; got {len(state.tensors)}.")
        check_begun(self.run.folder, numbers.pop("begun", {}), self.begun)
        position = position_in(numbers)
        if position.epoch > self.settings.epochs or position.batch > self.source.steps(position.epoch):
            raise RunError(f"There is no batch {position.batch} of epoch {position.epoch} in this run.")
        check_step(position, sum(map(self.source.steps, range(position.epoch))), self.run.metrics())
        self.learner.load(state.tensors, position.step, position.batch, counted="tensors" in state.numbers)
        self.position = position

    def _handle_failure(self, found: Failure) -> None:
        """Ignore the failure, roll back or stop, as the settings say."""
        policy = self.settings.on_divergence if found.kind == "divergence" else self.settings.on_overfitting
        if policy == "ignore":
            self.reporter.note(found.message)
            self._save(required=False)
            return
        self.processes.wait()
        state = self.run.rollback() if policy == "rollback" and self.position.rollbacks < ROLLBACKS else None
        if state is None:
            raise TrainingFailed(found.message)
        rollbacks = self.position.rollbacks + 1
        self.records.forget()
        self._restore(state)
        self.position.rollbacks = rollbacks
        self.reporter.note(f"{found.message} Back to epoch {self.position.epoch}, at half the learning rate.")
        if self.processes.first:
            self.run.rewind_metrics(self.position.epoch)
            self.run.rewind_steps(self.position.step)
        self._save(required=True, only=True)
        self.processes.wait()
