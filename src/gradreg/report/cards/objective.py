"""What a network was trained on, as the end of a sentence that begins with "trained"."""

from gradreg.norms import THREATS
from gradreg.objectives import Adversarial, Gradient, Noise, NoisyStep, Objective, RandomStartStep, Trades, Undefended
from gradreg.report.numbers import radius_name

_DUAL = {"l1": "∞", "l2": "2", "linf": "1"}


def in_words(objective: Objective) -> str:
    """The objective and its strength; everything else is in the recipe."""
    match objective:
        case Undefended():
            return "on the loss of the images as they are, without a defence"
        case Gradient():
            return _gradient(objective)
        case Adversarial():
            return f"on the worst images that {objective.steps} steps of ascent find within {_ball(objective)}"
        case Trades():
            return (
                f"by TRADES: the loss plus {objective.beta:g} times the divergence between the answers to an image and "
                f"to its worst neighbour within {_ball(objective)}"
            )
        case RandomStartStep():
            return f"on images moved by one step from a random start within {_ball(objective)} (FGSM-RS)"
        case NoisyStep():
            return f"on noisy images moved by one step of the radius of {_ball(objective)} (N-FGSM)"
        case Noise():
            return f"on images with Gaussian noise of σ = {objective.sigma:g}, {in_words(objective.inner)}"
    return f"with the objective {type(objective).__name__}"


def _gradient(objective: Gradient) -> str:
    norm = f"‖∇ℓ‖_{_DUAL[objective.threat]}"
    if objective.eps is not None:
        weight = f"{objective.weight:g} · " if objective.weight != 1 else ""
        strength = f"{weight}{radius_name(objective.eps)} · {norm}"
    elif objective.squared is not False:
        strength = f"λ/2 · {norm}², λ = {objective.lam:g}"
    else:
        strength = f"λ · {norm}, λ = {objective.lam:g}"
    # Authors' units: the l1 norm over √N, N being the number of pixel values.
    scaled = " (over √N)" if objective.threat == "linf" and objective.eps is None and objective.scale != "dual" else ""
    jitter = f" ± {100 * objective.h_jitter:g} %" if objective.h_jitter else ""
    way = (
        f"by finite differences, h = {radius_name(objective.length)}{jitter}"
        if objective.method == "fd"
        else "by double backprop"
    )
    sign = THREATS[objective.threat].symbol
    return f"with the input gradient penalty against {sign} attacks: the loss ℓ plus {strength}{scaled}, {way}"


def _ball(objective: Adversarial | Trades | RandomStartStep | NoisyStep) -> str:
    return f"{THREATS[objective.threat].symbol} {radius_name(objective.eps)}"
