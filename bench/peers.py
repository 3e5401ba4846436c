"""Other libraries' attacks behind one call, imported when they run: images out, counted and timed by us."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bench.options import PEERS, Lengths
from gradreg.attacks.autoattack import CountedRows
from gradreg.losses import margin
from gradreg.norms import ThreatName, per_image
from gradreg.norms import threat as named_threat

PeerAttack = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Outcome:
    """What an attack found and what it cost; forwards and backwards are means over the images."""

    distance: Tensor
    forwards: float
    backwards: float
    most: int | None
    """Propagations of the image that cost most; None for a peer, which does not say whose rows it evaluates."""
    cpu: float
    wall: float
    note: str = ""
    """Why a peer gave up; its images then count as not broken."""

    @property
    def propagations(self) -> float:
        """Forwards and backwards, a mean over the images."""
        return self.forwards + self.backwards


class Clock:
    """Processor time of this process, which neighbours disturb less, and time on the wall."""

    def __init__(self) -> None:
        self._cpu, self._wall = process_time(), perf_counter()

    def read(self) -> tuple[float, float]:
        """Seconds since the clock was made."""
        return process_time() - self._cpu, perf_counter() - self._wall


def version(peer: str) -> str | None:
    """The installed version, None if there is none."""
    try:
        with _quiet():
            return str(getattr(import_module(PEERS[peer][0]), "__version__", "of unknown version"))
    except ImportError:
        return None


def run_peer(
    attack: PeerAttack, model: nn.Module, x: Tensor, y: Tensor, *, threat: ThreatName, seed: int, within: float = np.inf
) -> Outcome:
    """Time and count a peer's attack, and measure its images ourselves.

    Only those in the box that a fresh forward misclassifies count, and with a radius only those `within` it, up to
    rounding: what peers return for a failure is a clean image or a black one. A peer may give up all images for one;
    that does not end the measurement.
    """
    counted, points, note = CountedRows(model).eval(), x, ""
    with _quiet(), _seeded(seed):
        clock = Clock()
        try:
            points = attack(counted, x, y)
        except Exception as error:
            note = f"failed: {error}"
        cpu, wall = clock.read()
    points = points.detach().to(x).clamp(0, 1)
    with torch.no_grad():
        broken = margin(model(points), y) > 0
    distance = named_threat(threat).norm(points - x)
    broken &= distance <= within * (1 + 1e-5)
    forwards, backwards = counted.forwards / len(x), counted.backwards / len(x)
    distance = distance.where(broken, torch.inf) if not note else torch.full_like(distance, torch.inf)
    return Outcome(distance, forwards, backwards, None, cpu, wall, note)


def minimal_attacks(peer: str, threat: ThreatName, radii: Sequence[float], sizes: Lengths) -> dict[str, PeerAttack]:
    """A peer's attacks for the smallest distance; PGD has none of its own, so it tries `radii`, rising."""
    if peer == "foolbox" and threat == "l2":
        cw: dict[str, Any] = {"binary_search_steps": sizes.rounds, "steps": sizes.cw}
        return {
            f"C&W {sizes.rounds}×{sizes.cw}": _foolbox("L2CarliniWagnerAttack", **cw),
            # Its own start is noise, and one image that no noise changes ends the attack for all: from other images.
            f"Boundary {sizes.boundary}": _foolbox("BoundaryAttack", start="DatasetAttack", steps=sizes.boundary),
            f"DDN {sizes.steps}": _foolbox("DDNAttack", steps=sizes.steps),
            f"PGD, {len(radii)} radii": _foolbox_nearest("L2PGD", radii),
        }
    if peer == "foolbox":
        return {
            f"FMN {sizes.steps}": _foolbox("LInfFMNAttack", steps=sizes.steps),
            f"PGD, {len(radii)} radii": _foolbox_nearest("LinfPGD", radii),
        }
    if peer == "art" and threat == "l2":
        return {"DeepFool": _art("DeepFool", max_iter=50)}
    return {}


def fixed_attacks(peer: str, threat: ThreatName, eps: float) -> dict[str, PeerAttack]:
    """A peer's attacks at one radius, with its own settings; AutoAttack is called through `gradreg.attacks`."""
    if peer == "foolbox":
        return {"PGD": _foolbox("L2PGD" if threat == "l2" else "LinfPGD", eps)}
    if peer == "art":
        # Its own default step is meant for its own default radius of 0.3.
        options = {"norm": 2 if threat == "l2" else np.inf, "eps": eps, "eps_step": eps / 10, "max_iter": 100}
        return {"PGD 100": _art("ProjectedGradientDescentPyTorch", **options)}
    return {}


def _foolbox(name: str, eps: float | None = None, start: str | None = None, **options: Any) -> PeerAttack:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        library = import_module("foolbox")
        wrapped, given = library.PyTorchModel(model, bounds=(0, 1), device=x.device), dict(options)
        if start is not None:
            given["init_attack"] = getattr(library.attacks, start)()
            given["init_attack"].feed(wrapped, x)
        _, clipped, _ = getattr(library.attacks, name)(**given)(wrapped, x, y, epsilons=eps)
        points: Tensor = clipped
        return points

    return run


def _foolbox_nearest(name: str, radii: Sequence[float]) -> PeerAttack:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        library = import_module("foolbox")
        wrapped = library.PyTorchModel(model, bounds=(0, 1), device=x.device)
        _, clipped, success = getattr(library.attacks, name)()(wrapped, x, y, epsilons=list(radii))
        nearest = x
        for points, broken in reversed(list(zip(clipped, success, strict=True))):
            nearest = torch.where(per_image(broken, x).bool(), points, nearest)
        return nearest

    return run


def _art(name: str, **options: Any) -> PeerAttack:
    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        evasion, estimators = import_module("art.attacks.evasion"), import_module("art.estimators.classification")
        with torch.no_grad():
            classes = model(x[:1]).shape[1]
        classifier = estimators.PyTorchClassifier(
            model,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=classes,
            clip_values=(0.0, 1.0),
            device_type="cpu" if x.device.type == "cpu" else "gpu",
        )
        attack = getattr(evasion, name)(classifier, batch_size=len(x), verbose=False, **options)
        return torch.from_numpy(np.asarray(attack.generate(x.numpy(force=True), y.numpy(force=True))))

    return run


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Peers draw from the global streams of torch and numpy, which are put back where they were."""
    before = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed)
            yield
    finally:
        np.random.set_state(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Peers call what numpy and scipy have deprecated, of which nobody can do anything here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
