"""`python -m bench claims`: every claim, one after the other, kept as it is found."""

from dataclasses import asdict
from functools import partial

import torch
from rich.console import Console

from bench.claims import cost, digits, records
from bench.claims.claim import Claim, Finding
from bench.options import ClaimOptions
from bench.record import plain_table, write_json
from gradreg.ledger import Ledger
from gradreg.provenance import machine

CLAIMS = (
    Claim(
        "faster-digits",
        "Finite differences are about 10 % faster than double backprop on networks sized for MNIST.",
        "§3.1",
        cost.faster_on_digits,
    ),
    Claim("faster-photographs", "On CIFAR-10 networks they are about 50 % faster.", "§3.1", cost.faster_on_photographs),
    Claim(
        "imagenet-time",
        "Robust training takes about 50 % more time than standard training on ImageNet.",
        "§1, Table 1",
        cost.half_more_on_imagenet,
    ),
    Claim(
        "omega-control",
        "The finite difference also keeps ω(h) small, which an exact gradient norm would not.",
        "§3.1",
        digits.differences_control_omega,
    ),
    Claim(
        "noise",
        "Training with Gaussian noise is equivalent to squared l2 gradient regularization (Bishop 1995).",
        "§2.2",
        digits.noise_is_a_squared_penalty,
    ),
    Claim(
        "quadratic",
        "An attacker with quadratic cost gains at most (λ/2)‖∇ℓ‖² with λ = δ/(1 − δC).",
        "Prop. 3.1",
        digits.quadratic_attacker_is_bounded,
    ),
    Claim(
        "temperature",
        "A higher or lower softmax temperature sends the L-bound to zero without changing robustness.",
        "§2.2",
        digits.temperature_changes_no_robustness,
    ),
    Claim(
        "pgd",
        "On the majority of images PGD finds the closest adversarial image; on a significant part another attack does.",
        "§4",
        digits.pgd_finds_most,
    ),
    Claim(
        "one-gradient",
        "Once L and ω are known, a bound needs one gradient and one model evaluation.",
        "§2.2",
        cost.one_gradient_per_bound,
    ),
    Claim(
        "vacuous",
        "The L-bound is vacuous in l∞: an error of 100 % at all distances.",
        "§4",
        records.lipschitz_bound_is_vacuous,
    ),
    Claim(
        "omega-closer",
        "The ω-bound is closer to the empirical distance than the L-bound.",
        "§4, Table 2",
        records.omega_bound_is_closer,
    ),
    Claim(
        "trade-off",
        "There is a clear trade-off between test accuracy and robustness as λ rises.",
        "§4, Table 1",
        records.accuracy_is_traded_for_robustness,
    ),
    Claim(
        "at-better",
        "In l∞ adversarial training is slightly more robust (about 5 points), at over double the training time.",
        "§4, Table 1",
        records.adversarial_training_is_slightly_better,
    ),
    Claim(
        "l2-wins",
        "In l2 the model with λ = 1 outperforms even the adversarially trained one.",
        "§4, Table 2",
        records.strong_penalty_wins_in_l2,
    ),
    Claim(
        "regularity",
        "Both defences significantly decrease gradients and ω.",
        "§4, Table 3",
        records.gradients_and_omega_fall,
    ),
    Claim(
        "smoothing",
        "Randomized smoothing corroborates the heuristic bounds.",
        "§4, Table 4",
        records.smoothing_agrees_with_the_bounds,
    ),
)


def show(options: ClaimOptions, console: Console) -> None:
    """Measure what is not kept yet, print the table, and write the file."""
    torch.set_num_threads(1)
    table = plain_table("the paper's claims", ("claim", "measured", "verdict"), left=3)
    rows = []
    chosen = [claim for claim in CLAIMS if not options.keys or claim.key in options.keys]
    with Ledger(options.work, {"options": repr(options.facts())}) as ledger:
        for claim in chosen:
            console.print(f"{claim.key} …", highlight=False)
            found: Finding = ledger.once(claim.key, Finding, partial(claim.check, options))
            table.add_row(claim.says, found.measured, found.verdict)
            command = f"python -m bench claims --only {claim.key}"
            rows.append(
                {"key": claim.key, "says": claim.says, "where": claim.where, "command": command} | asdict(found)
            )
    console.print(table)
    if options.json is not None:
        write_json(options.json, {"options": options.facts(), "machine": machine(), "claims": rows})
