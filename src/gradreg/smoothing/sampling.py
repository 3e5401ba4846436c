"""Predictions under Gaussian noise, with several images packed into each batch.

An image is sampled in stages; after each it is either decided or goes on to the next. Most images need a few dozen
samples and some a hundred thousand, so a batch takes whatever is next of whichever images are under way. Memory holds
one batch, whatever n is. Each (image, stage) has its own random stream: neither batch size nor order matters, and an
interrupted stage is simply drawn again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradreg.calling.repeats import check_mixed
from gradreg.classifier import Classifier
from gradreg.errors import ModelError
from gradreg.randomness import stream

Ints = NDArray[np.int64]


@dataclass
class Stage:
    """A number of samples of one image, and how often each class was predicted so far."""

    image: int
    number: int
    left: int
    noise: np.random.Generator
    counts: Ints


Request = tuple[int, int, int]
"""Image, number of the stage, samples."""


@dataclass(frozen=True)
class Sampler:
    """The base classifier with the noise that makes it the smoothed one."""

    classifier: Classifier
    x: Tensor
    keys: list[int]
    classes: int
    sigma: float
    seed: int
    batch_size: int

    def run(self, first: Iterable[Request], decide: Callable[[Stage], Request | None]) -> Iterator[int]:
        """Work through all images; `decide` says what comes after a finished stage. Yields each image that is done."""
        waiting, at_hand = iter(first), deque[Stage]()
        largest = 0
        buffer = np.empty((self.batch_size, *self.x.shape[1:]), dtype=np.float32)
        while True:
            pieces = self._fill(buffer, waiting, at_hand)
            if not pieces:
                return
            size = sum(taken for _, taken in pieces)
            self._count(buffer, pieces, size > largest)
            largest = max(largest, size)
            for stage, _ in reversed(pieces):
                if stage.left:
                    continue
                following = decide(stage)
                if following is None:
                    yield stage.image
                else:
                    # In front of the others: images are finished one after the other, so progress is visible.
                    at_hand.appendleft(self._open(following))

    def _fill(
        self, buffer: NDArray[np.float32], waiting: Iterator[Request], at_hand: deque[Stage]
    ) -> list[tuple[Stage, int]]:
        """Noise for the next batch: which stages are in it, with how many samples each."""
        pieces: list[tuple[Stage, int]] = []
        filled = 0
        while filled < len(buffer):
            if not at_hand:
                request = next(waiting, None)
                if request is None:
                    break
                at_hand.append(self._open(request))
            stage = at_hand[0]
            taken = min(stage.left, len(buffer) - filled)
            stage.noise.standard_normal(dtype=np.float32, out=buffer[filled : filled + taken])
            stage.left -= taken
            filled += taken
            pieces.append((stage, taken))
            if stage.left == 0:
                at_hand.popleft()
        return pieces

    def _count(self, buffer: NDArray[np.float32], pieces: list[tuple[Stage, int]], larger: bool) -> None:
        rows = np.repeat([stage.image for stage, _ in pieces], [taken for _, taken in pieces])
        noise = torch.from_numpy(buffer[: len(rows)]).to(self.x.device, self.x.dtype)
        index = torch.from_numpy(rows).to(self.x.device)
        points = torch.add(self.x[index], noise, alpha=self.sigma)
        with torch.no_grad():
            logits = self.classifier(points, index)
        # An answer of −1 stands for logits that are not finite, so that one look at the device tells both.
        first, second = logits.topk(2).values.unbind(1)
        # A tie is no answer, since nothing says how it would be broken: it counts for no class.
        answers = logits.argmax(1).where(first > second, self.classes).where(logits.isfinite().all(1), -1).cpu().numpy()
        if answers.min() < 0:
            bad = int(rows[answers.argmin()])
            raise ModelError(f"The model's logits are not finite on image {bad} with noise of σ = {self.sigma:g}.")
        if larger:
            # It may be larger than any batch of images too, and meet what a model does to large batches only.
            check_mixed(self.classifier.ask, points, logits)
        end = 0
        for stage, taken in pieces:
            end += taken
            stage.counts += np.bincount(answers[end - taken : end], minlength=self.classes + 1)[: self.classes]

    def _open(self, request: Request) -> Stage:
        image, number, samples = request
        noise = stream("smoothing", self.seed, self.keys[image], number)
        return Stage(image, number, samples, noise, np.zeros(self.classes, dtype=np.int64))
