"""Every code that a flag can have, and what to do when it is raised; `docs/diagnosis.md` explains them."""

ADVICE: dict[str, str] = {
    # how the model is used
    "train-mode": "Call model.eval() before you attack, certify or report anything.",
    "input-range": "Pass pixels in the model's box, [0, 1], and put scaling and normalisation inside the model.",
    "not-finite": "Look for overflow, 0/0 or log(0) in the model; no attack can climb a loss that is not a number.",
    "clean-accuracy": "Check the labels, their order and the normalisation: there is no robustness to examine here.",
    "randomised": "Average over many draws inside the model, with gradients through all of them, and diagnose that.",
    "probabilities": "Return the logits, without the softmax at the end.",
    "optimises-inside": "Attack through the whole inner loop and without it, and report what breaks more images.",
    # its gradients
    "zero-gradient-margin": (
        "Replace what has no slope (rounding, thresholds, detached parts) by something smooth in the backward pass and "
        "attack without gradients too."
    ),
    "zero-gradient-cross-entropy": "Attack the margin on logits, not the cross entropy, which underflows here.",
    "saturated-loss": "Attack the margin on logits; undo the scale of the last layer before you compare losses.",
    "closed-loss-gap": "Judge by distances, not by gradient norms: a hot softmax shrinks both the gap and the slope.",
    "slope-mismatch": "Do not trust gradients here: smooth them over noise, or attack without them.",
    "slope-uncorrelated": "Look for a custom backward, a detached part or a rough layer; attack without gradients.",
    "unstable-gradient": "Average gradients over noise, use more restarts, and attack without gradients too.",
    # attacks that should not be able to beat each other
    "single-step-wins": "The iterative attack is stuck: try other step sizes, more restarts and other losses.",
    "loss-matters": "Report what the stronger loss finds, and use several losses.",
    "not-converged": "Give the attack more steps and restarts until nothing changes any more.",
    "radius-does-not-help": "A larger ball holds the smaller one, so the attack is stuck: mend it before you report.",
    "unbounded-attack-fails": "In the whole box every image can be broken, so gradients mislead: attack without them.",
    "noise-wins": "Random noise found what gradients missed: do not report the gradient attack.",
    "gradient-free-wins": "Report the gradient-free attack's result, and look for what hides the gradients.",
    "attack-stopped": "Mend the model at the images that the attack reached, and diagnose it again.",
    # what was claimed about the model
    "not-reproduced": "Attack this model, in this mode and precision, again: the result belongs to another one.",
    "given-attack-beaten": "The attack that was passed is too weak for a claim: take more steps or a stronger suite.",
    "certificate-contradicted": "The proof, the radius's norm or units, or the model it is of is wrong: find out.",
    "bound-violated": "The bound is a heuristic and fails here: do not call it certified, estimate it by ascent.",
    "smoothed-certificates": "",
    "left-out": "",
}
