"""What the terms of a report mean."""

from gradreg.report.comparison import Comparison

# In the order in which a reader meets them.
_GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "Threat",
        "The norm that measures the attacker's perturbation: l∞ is the largest change of a pixel value, l2 the root of "
        "the summed squares, l1 the sum. Pixels are in [0, 1], so 8/255 is eight grey levels of 255.",
    ),
    (
        "Distance",
        "Of an image: the smallest adversarial perturbation found, in the threat's norm. It is 0 for a misclassified "
        "image; an image that remains robust to every attack (unbroken) has none.",
    ),
    ("Clean accuracy", "Fraction of unperturbed images that are classified correctly."),
    (
        "Robust accuracy",
        "At a radius: fraction of images that are classified correctly and for which no attack found an adversarial "
        "image within the radius. Empirical: stronger attacks can only lower it. Robust error, which the paper quotes, "
        "is 1 minus it.",
    ),
    (
        "AutoAttack",
        "The reference attack of Croce & Hein 2020, at one radius. Where it was run, its successes count against "
        "robust accuracy, besides those of our attacks.",
    ),
    (
        "Interval",
        "95 % Clopper-Pearson interval of a fraction of images. It covers the choice of test images only: not the "
        "variance between training runs, and not stronger attacks.",
    ),
    (
        "Margin",
        "The largest score of the other classes minus that of the true class: negative is correct. The bounds use "
        "softmax probabilities, the attacks logits.",
    ),
    (
        "Heuristic",
        "Rests on an estimate that can be too low. The L-bound and the ω-bound are heuristic: L and ω are estimated "
        "from samples, so an attack may break an image inside its bound. Violations are counted.",
    ),
    (
        "Calibrated",
        "Divided by a number so that it is below what the attacks of this evaluation find, on all but a share α of "
        "images of the same distribution. It rests on attacks of other images, assumes nothing else, and is not a "
        "certificate: stronger attacks or other images may violate it more often.",
    ),
    (
        "Probabilistic",
        "Holds except with a stated small probability. Certificates by randomized smoothing are probabilistic, and "
        "hold for the classifier under Gaussian noise, not for the network itself. Only they are called certified.",
    ),
    ("Sound", "Proved for the network itself. Nothing in this report is sound unless it says so."),
    (
        "Gradient masking",
        "Gradients that mislead attacks make a model look more robust than it is. The diagnosis looks for signs of "
        "masking; finding none is no proof of absence.",
    ),
    ("Cost", "Training hours over those of the undefended model of the same architecture and number of epochs."),
)

_FRESH = (
    "Fresh draws",
    "A randomised model is evaluated and attacked as the average of fixed draws, and robust accuracy is about these. "
    "Fresh draws are as many that no attack saw, others for each image.",
)


def glossary(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Terms and what they mean; fresh draws only where a model is randomised."""
    return (*_GLOSSARY, _FRESH) if any(each.fresh is not None for each in comparison.evaluations) else _GLOSSARY
