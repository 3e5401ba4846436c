"""Every code that a flag can have: the test that raises it, what that test needs, and what to do about it.

A new test is a function and one entry here. Functions are named and not imported: reading flags must load no attack.
The order is that of a diagnosis, and of `docs/diagnosis.md`, which explains each code.
"""

from dataclasses import dataclass
from typing import Literal

Stage = Literal["usage", "point", "nearby", "contest", "claim", "note"]
"""When a test is made, and so what its function is given.

- usage: a `Case` of all images and the model as it is.
- point: a `Case` of the correctly classified images. No radius is needed, so any pixel units and random models will do.
- nearby: the same, if distances mean something and the model repeats its answers.
- contest: a `Contest` of the same images, if its attacks exist for the threat.
- claim: a `Comparison`, if the claim was passed.
- note: not a test; the diagnosis itself raises it.
"""


@dataclass(frozen=True)
class Test:
    """One entry of the registry."""

    code: str
    stage: Stage
    run: str
    """The function that makes it, as "module.function" of this package; "" for a note."""
    advice: str = ""
    """What to do when it is raised; empty where there is nothing to do."""
    needs: tuple[str, ...] = ()
    """For a contest the names of attacks, for a claim that of the argument of `diagnose`."""


_ENTRIES = (
    # how the model is used
    Test("train-mode", "usage", "usage.train_mode", "Call model.eval() before you attack, certify or report anything."),
    Test(
        "input-range",
        "usage",
        "usage.input_range",
        "Pass pixels in the model's box, [0, 1], and put scaling and normalisation inside the model.",
    ),
    Test(
        "not-finite",
        "usage",
        "usage.not_finite",
        "Look for overflow, 0/0 or log(0) in the model; no attack can climb a loss that is not a number.",
    ),
    Test(
        "clean-accuracy",
        "usage",
        "usage.clean_accuracy",
        "Check the labels, their order and the normalisation: there is no robustness to evaluate here.",
    ),
    Test(
        "randomised",
        "usage",
        "usage.randomised",
        "Average over many draws inside the model, with gradients through all of them, and diagnose that.",
    ),
    Test(
        "batch-dependent",
        "usage",
        "usage.batch_dependent",
        "Let batch normalisation use running statistics, or normalise each image by itself, and evaluate that.",
    ),
    Test("probabilities", "usage", "usage.probabilities", "Return the logits, without the softmax at the end."),
    Test(
        "optimises-inside",
        "usage",
        "usage.optimises_inside",
        "Attack through the whole inner loop and without it, and report what breaks more images.",
    ),
    # its gradients
    Test(
        "zero-gradient-margin",
        "point",
        "slopes.zero_gradient_margin",
        "Replace what has no slope (rounding, thresholds, detached parts) by something smooth in the backward pass and "
        "attack without gradients too.",
    ),
    Test(
        "zero-gradient-cross-entropy",
        "point",
        "slopes.zero_gradient_cross_entropy",
        "Attack the margin on logits, not the cross entropy, which underflows here.",
    ),
    Test(
        "saturated-loss",
        "point",
        "slopes.saturated_loss",
        "Attack the margin on logits; undo the scale of the last layer before you compare losses.",
    ),
    Test(
        "closed-loss-gap",
        "point",
        "slopes.closed_loss_gap",
        "Judge by distances, not by gradient norms: a hot softmax shrinks both the gap and the slope.",
    ),
    Test(
        "slope-mismatch",
        "nearby",
        "slopes.slope_mismatch",
        "Do not trust gradients here: smooth them over noise, or attack without them.",
    ),
    Test(
        "slope-uncorrelated",
        "nearby",
        "slopes.slope_uncorrelated",
        "Look for a custom backward, a detached part or a rough layer; attack without gradients.",
    ),
    Test(
        "unstable-gradient",
        "nearby",
        "slopes.unstable_gradient",
        "Average gradients over noise, use more restarts, and attack without gradients too.",
    ),
    # attacks that should not be able to beat each other
    Test(
        "radius-does-not-help",
        "contest",
        "contests.radius_does_not_help",
        "A larger ball holds the smaller one, so the attack is stuck: fix it before you report.",
    ),
    Test(
        "unbounded-attack-fails",
        "contest",
        "contests.unbounded_attack_fails",
        "In the whole box every image can be broken, so gradients mislead: attack without them.",
    ),
    Test(
        "single-step-wins",
        "contest",
        "contests.single_step_wins",
        "The iterative attack is stuck: try other step sizes, more restarts and other losses.",
        needs=("pgd",),
    ),
    Test(
        "loss-matters",
        "contest",
        "contests.loss_matters",
        "Report what the stronger loss finds, and use several losses.",
        needs=("pgd",),
    ),
    Test(
        "not-converged",
        "contest",
        "contests.not_converged",
        "Give the attack more steps and restarts until nothing changes any more.",
    ),
    Test(
        "noise-wins",
        "contest",
        "contests.noise_wins",
        "Random noise found what gradients missed: do not report the gradient attack.",
    ),
    Test(
        "gradient-free-wins",
        "contest",
        "contests.gradient_free_wins",
        "Report the gradient-free attack's result, and look for what hides the gradients.",
        needs=("square",),
    ),
    Test("attack-stopped", "note", "", "Fix the model at the images that the attack reached, and diagnose it again."),
    # what was claimed about the model
    Test(
        "not-reproduced",
        "claim",
        "claims.not_reproduced",
        "Attack this model, in this mode and precision, again: the result belongs to another one.",
        needs=("attack_result",),
    ),
    Test(
        "given-attack-beaten",
        "claim",
        "claims.given_attack_beaten",
        "The attack that was passed is too weak for a claim: take more steps or a stronger suite.",
        needs=("attack_result",),
    ),
    Test(
        "certificate-contradicted",
        "claim",
        "claims.certificate_contradicted",
        "The proof, the radius's norm or units, or the model it is of is wrong: find out.",
        needs=("sound",),
    ),
    Test(
        "bound-violated",
        "claim",
        "claims.bound_violated",
        "The bound is a heuristic and fails here: do not call it certified, estimate it by ascent.",
        needs=("bound",),
    ),
    Test(
        "calibration-violated",
        "claim",
        "claims.calibration_violated",
        "The images differ from those it was calibrated on, or the attack is stronger: calibrate on images like these.",
        needs=("bound", "bound.calibration"),
    ),
    Test("smoothed-certificates", "note", ""),
    Test("left-out", "note", ""),
)

TESTS: dict[str, Test] = {test.code: test for test in _ENTRIES}


def at_stage(*stages: Stage) -> list[Test]:
    """The tests of these stages, in the order in which they are made."""
    return [test for test in _ENTRIES if test.stage in stages]
