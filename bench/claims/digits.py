"""Claims that small networks on the embedded digits answer, two seeds each."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from bench.claims.claim import Finding, holds
from bench.digits import fresh_model
from bench.options import ClaimOptions
from gradreg.attacks import attack
from gradreg.bounds import bounds, curvature, estimate_regularity, quadratic_strength
from gradreg.classifier import Classifier
from gradreg.data import Batches, Images, load
from gradreg.losses import cross_entropy, soft_margin
from gradreg.norms import ThreatName, threat
from gradreg.penalty import regularized_loss

_SIGMA = 0.25
_LAM = 0.5
_NORMS: tuple[ThreatName, ...] = ("l2", "linf")
Loss = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


def _plain(model: nn.Module, x: Tensor, y: Tensor, dice: torch.Generator) -> Tensor:
    return cross_entropy(model(x), y).mean()


def _noisy(model: nn.Module, x: Tensor, y: Tensor, dice: torch.Generator) -> Tensor:
    return cross_entropy(model(x + _SIGMA * torch.randn(x.shape, generator=dice)), y).mean()


def _penalised(**options: object) -> Loss:
    return lambda model, x, y, dice: regularized_loss(model, x, y, threat="l2", graphs=2, **options).loss  # type: ignore[arg-type]


_LOSSES: dict[str, Loss] = {
    "plain": _plain,
    "noise": _noisy,
    "matched": _penalised(lam=_SIGMA**2),
    "fd 0.01": _penalised(lam=_LAM, h=0.01),
    "fd 2": _penalised(lam=_LAM, h=2.0),
    "double": _penalised(lam=_LAM, method="double-backprop"),
}


def _data(part: str, images: int) -> tuple[Tensor, Tensor]:
    found = getattr(load("mnist5k"), part)
    assert isinstance(found, Images)
    return found.floats(slice(images)), found.labels[:images]


@cache
def _trained(kind: str, seed: int, epochs: int) -> nn.Module:
    """The small network with GELU, which is smooth, trained by one of the losses."""
    digits = load("mnist5k").train
    assert isinstance(digits, Images)
    model, batches = fresh_model(seed), Batches(digits, 64, shuffle=True, seed=seed, drop_last=True)
    dice = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=epochs * len(batches))
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            _LOSSES[kind](model, x, y, dice).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def _both(options: ClaimOptions, kind: str) -> list[nn.Module]:
    return [_trained(kind, seed, options.epochs) for seed in (options.seed, options.seed + 1)]


def _figures(values: list[float]) -> str:
    return " and ".join(f"{value:.3f}" for value in values)


def _setting(options: ClaimOptions) -> str:
    return f"digits, n = {options.images}, seeds {options.seed} and {options.seed + 1}"


def differences_control_omega(options: ClaimOptions) -> Finding:
    """|ℓ(x + εd) − ℓ(x) − ε‖∇ℓ‖|/ε at ε = 1, along the steepest ascent of the cross entropy."""
    x, y = _data("test", options.images)
    found = {
        kind: [_linearity(model, x, y) for model in _both(options, kind)] for kind in ("fd 0.01", "double", "fd 2")
    }
    measured = (
        f"Error of the linear model at l2 1 ({_setting(options)}, λ = {_LAM:g}): {_figures(found['fd 0.01'])} with "
        f"h = 0.01, {_figures(found['double'])} with double backprop, {_figures(found['fd 2'])} with h = 2."
    )
    return Finding(measured, holds(max(found["fd 0.01"]) < min(found["double"])))


def _linearity(model: nn.Module, x: Tensor, y: Tensor) -> float:
    classifier, norm = Classifier(model), threat("l2")
    clean, gradient = classifier.loss_and_gradient(x, y, cross_entropy)
    with torch.no_grad():
        ahead = cross_entropy(model(x + norm.ascent(gradient)), y)
    return float((ahead - clean - norm.dual_norm(gradient)).abs().mean())


def noise_is_a_squared_penalty(options: ClaimOptions) -> Finding:
    """Noise of σ adds σ²/2·tr H; for the cross entropy that is the penalty's E‖∇ℓ‖² under the model's own labels."""
    x, y = _data("test", options.images)
    distances = {
        kind: [float(attack(model, x, y, attacks="quick", seed=options.seed).distance.mean()) for model in models]
        for kind in ("plain", "noise", "matched")
        for models in [_both(options, kind)]
    }
    measured = (
        f"Mean l2 distance ({_setting(options)}): {_figures(distances['plain'])} undefended, "
        f"{_figures(distances['noise'])} with noise of σ = {_SIGMA:g}, {_figures(distances['matched'])} with the "
        f"squared l2 penalty of λ = σ²."
    )
    noise, matched = (sum(distances[kind]) / 2 for kind in ("noise", "matched"))
    return Finding(measured, holds(abs(noise - matched) <= 0.1 * noise))


def quadratic_attacker_is_bounded(options: ClaimOptions) -> Finding:
    """max_v ℓ(x + v) − ‖v‖²/(2δ) by gradient ascent, against ℓ(x) + (λ/2)‖∇ℓ‖²; ℓ is the soft margin, δ = 1/(2C)."""
    x, y = _data("test", min(options.images, 100))
    model = _trained("fd 0.01", options.seed, options.epochs)
    bent = curvature(model, x, y, seed=options.seed)
    largest = float((bent.eigenvalue + bent.residual).max())
    delta = 0.5 / largest
    lam = quadratic_strength(delta, largest)
    bound = bent.margin + lam / 2 * bent.grad_norm.square()
    v = torch.zeros_like(x)
    classifier = Classifier(model, box=(-10.0, 10.0))
    value = bent.margin
    for _ in range(50):
        losses, gradient = classifier.loss_and_gradient(x + v, y, lambda z, y: soft_margin(z.softmax(1), y))
        value = torch.maximum(value, losses - v.square().flatten(1).sum(1) / (2 * delta))
        # The gradient of the objective is ∇ℓ − v/δ; a step of δ/2 contracts, since δC = ½.
        v = v + delta / 2 * (gradient - v / delta)
    kept = float((value <= bound + 1e-5).double().mean())
    measured = (
        f"C = {largest:.3g} at {len(x)} digits (seed {options.seed}), δ = 1/(2C): the attacker stays below "
        f"ℓ + (λ/2)‖∇ℓ‖² on {100 * kept:.0f} % of them."
    )
    return Finding(measured, holds(kept == 1.0))


def temperature_changes_no_robustness(options: ClaimOptions) -> Finding:
    """Logits divided by T: the predictions and distances stay, the L-bound falls on both sides."""
    x, y = _data("test", min(options.images, 100))
    train = _data("train", 320)
    model = _trained("fd 0.01", options.seed, options.epochs)
    found = {}
    for T in (0.25, 1.0, 10.0):
        scaled = _Scaled(model, T).eval()
        known = estimate_regularity(scaled, train, "l2", method="paper", block_size=16, seed=options.seed)
        far = attack(scaled, x, y, attacks="quick", seed=options.seed).distance
        found[T] = float(bounds(scaled, x, y, known).lipschitz.mean()), float(far.mean())
    told = "; ".join(f"T = {T:g}: {bound:.4f} and {far:.3f}" for T, (bound, far) in found.items())
    measured = f"Mean L-bound and distance in l2 (digits, n = {len(x)}, seed {options.seed}): {told}."
    return Finding(measured, holds(found[1.0][0] > max(found[0.25][0], found[10.0][0])))


class _Scaled(nn.Module):
    """Logits over a temperature."""

    def __init__(self, model: nn.Module, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits / self.temperature


def pgd_finds_most(options: ClaimOptions) -> Finding:
    """Who found the nearest image, among the paper's four attacks."""
    x, y = _data("test", min(options.images, 100))
    shares = []
    for kind in ("plain", "fd 0.01"):
        for norm in _NORMS:
            model = _trained(kind, options.seed, options.epochs)
            won = attack(model, x, y, threat=norm, attacks="paper", seed=options.seed).winner
            found = [name for name in won if name not in ("", "clean")]
            shares.append((f"{kind}, {threat(norm).symbol}", found.count("pgd") / max(len(found), 1)))
    told = "; ".join(f"{name} {100 * share:.0f} %" for name, share in shares)
    measured = f"Images whose nearest adversarial image PGD found (digits, n = {len(x)}, seed {options.seed}): {told}."
    return Finding(measured, holds(all(share > 0.5 for _, share in shares)))
