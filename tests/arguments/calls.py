"""A valid call of everything public, which odd values are valid in it too, and what is not called by users."""

import re
from functools import partial
from typing import Any, get_type_hints

import numpy as np
import torch

import gradreg
from arguments import toys
from arguments.call import Call
from arguments.surface import Entry, entries
from arguments.toys import Counting, asked
from arguments.training_calls import TRAINING
from gradreg.attacks.run import Attack
from gradreg.bounds import Calibration, fit_lmoments
from gradreg.checks.scalars import Count
from gradreg.evaluation import EvaluationOptions

# The same wherever an argument has that name; "same" is to give the answer of the valid call.
TAKEN = {
    "weights": "without axes",
    "seed": "0, 10**12",
    "eps": "0, 10**12",
    "radius": "10**12",
    "sigma": "10**12",
    "y": "same: int32, uint8",
}
_SAME = {"batch_size": "same: 10**12"}
AN_ATTACK = _SAME | {"eps": "0, 10**12, array of 2"}
_RADII = {"radii": "0, 2.5, 10**12, array of 2"}
_LABELS = "same: int32, uint8; one too large"  # nothing says how many classes there are
_COUNTS = {"hits": "0, [], 2×3 tensor, array of 2", "n": "10**12, []"}
_LIKE: dict[str, Call] = {
    f"norms.{name}": Call(lambda: {"threat": gradreg.threat("l2"), "like": toys.images()}, {"like": "2×3 tensor"})
    for name in ("check", "checked", "probe", "reach_of", "usual_radii_of")
}
_STRENGTH = {"weight": "0, 10**12", "lazy": "10**12", "noise": "0", "output_slope": "0, 10**12"}
_STRENGTH |= {"omega": "0, 10**12", "second_step": "0, 10**12", "eps": "0"}  # no step is longer than an image is wide

MEASURES: dict[str, Call] = {
    "AttackResult.plot": Call(lambda: {"x": toys.images()}, of=toys.attacked),
    "AttackResult.robust": Call(lambda: {"eps": 0.1}, of=toys.attacked),
    "AttackResult.robust_accuracy": Call(lambda: {"eps": 0.1}, of=toys.attacked),
    "AttackResult.select": Call(lambda: {"images": torch.tensor([0, 1])}, of=toys.attacked),
    "AttackResult.to": Call(lambda: {"device": "cpu"}, of=toys.attacked),
    "Certificates.load": Call(lambda: {"path": toys.files()["certificates"]}),
    "Certificates.save": Call(lambda: {"path": "c.safetensors"}, {"path": "text"}, of=toys.certified),
    "Classifier": Call(lambda: {"model": Counting()}),
    "Classifier.of": Call(lambda: {"model": Counting()}),
    "Classifier.check": Call(lambda: {"x": toys.images(), "y": toys.labels()}, of=toys.classifier),
    "Classifier.counted": Call(lambda: {"images": 4}, of=toys.classifier),
    "Evaluation.certified": Call(
        lambda: {"smoothed": toys.evaluated().smoothing[0], "radius": 0.02}, {"radius": "0, 10**12"}, of=toys.evaluated
    ),
    "Evaluation.sure": Call(
        lambda: {"smoothed": toys.evaluated().smoothing[0], "frequency": 0.9}, {"frequency": "0"}, of=toys.evaluated
    ),
    "Evaluation.save": Call(lambda: {"folder": "evaluation"}, of=toys.evaluated),
    "Flag.from_json": Call(lambda: {"text": toys.flags()[0].to_json()}),
    "GradientPenalty": Call(lambda: {"eps": 0.1}, _STRENGTH | {"noise": "0, 10**12"}),
    "GradientPenalty.__call__": Call(asked(), of=lambda: gradreg.GradientPenalty(eps=0.1)),
    "GradientPenalty.follow": Call(
        lambda: {"optimizer": torch.optim.SGD(Counting().parameters(), lr=0.1)},
        of=lambda: gradreg.GradientPenalty(eps=0.1),
    ),
    "GradientPenalty.load_state_dict": Call(
        lambda: {"state": {"steps": 3}}, of=lambda: gradreg.GradientPenalty(eps=0.1)
    ),
    "Pool": Call(lambda: {"images": 4}),
    "Pool.load": Call(lambda: {"path": toys.files()["pool"]}),
    "Pool.merge": Call(lambda: {"others": toys.pool()}, of=toys.pool),
    "Pool.save": Call(lambda: {"path": "p.safetensors"}, of=toys.pool),
    "Pool.update": Call(lambda: {"result": toys.attacked()}, {"threat": "None"}, of=toys.pool),
    "Regularity": Call(
        lambda: {
            "threat": "l2",
            "method": "given",
            "lipschitz": torch.tensor(1.0),
            "eps": torch.tensor([0.1, 0.2]),
            "omega": torch.tensor([0.1, 0.2]),
        },
        {
            "threshold": "0, -1, 10**12",
            "eps": "",
            "lipschitz": "same: without axes",
            "lipschitz_upper": "without axes",
        },
    ),
    "Regularity.load": Call(lambda: {"path": toys.files()["regularity"]}),
    "Regularity.omega_at": Call(lambda: {"eps": 0.1}, of=toys.regularity, nan=True),
    "Regularity.save": Call(lambda: {"path": "r.safetensors"}, of=toys.regularity),
    "attack": Call(asked(attacks=["deepfool"]), _SAME | {"eps": "0, 10**12, array of 2"}),
    "attacks.AttackOptions": Call(dict, {"eps": "0, 10**12, array of 2"}),
    "attacks.EpsilonOracle": Call(dict, {"eps": ""}),
    "attacks.EpsilonOracle.critical": Call(asked(), of=toys.oracle),
    "attacks.EpsilonOracle.execute": Call(
        lambda: {"model": Counting(), "data": toys.images(), "target": toys.labels(), "epsilon": 0.1},
        {"epsilon": "0, 10**12", "target": "same: int32, uint8, two axes"},
        of=toys.oracle,
    ),
    "attacks.autoattack": Call(asked(eps=0.1), {"eps": "10**12", **_SAME}, needs="pyautoattack"),
    "attacks.boundary": Call(asked(steps=10), AN_ATTACK),
    "attacks.polish": Call(asked(start=1 - toys.images(), steps=3), AN_ATTACK),
    "attacks.pooled": Call(lambda: {"results": [toys.attacked()]}),
    "bounds": Call(lambda: asked(regularity=toys.regularity())(), _SAME, nan=True),
    "bounds.Curvature.bound": Call(dict, {"largest": "0, -1, 10**12"}, of=toys.curved),
    "bounds.GEV.quantile": Call(lambda: {"p": 0.01}, of=lambda: fit_lmoments(np.arange(30.0))),
    "bounds.block_maxima": Call(lambda: {"values": np.arange(40.0), "block_size": 2}),
    "bounds.chance_of": Call(
        lambda: {"violated": 1, "images": 5, "calibration": Calibration(0.1, 1.0, 1.0, 1.0, "quick", 20, 0)},
        {"violated": "0"},
    ),
    "bounds.conformal_scale": Call(lambda: {"bound": torch.ones(30), "distance": torch.full((30,), 2.0), "alpha": 0.1}),
    "bounds.cross_calibrated": Call(
        lambda: {"bound": torch.ones(60), "distance": torch.full((60,), 2.0), "alpha": 0.1}
    ),
    "bounds.curvature": Call(asked(steps=3), {"sharpness": "10**12", "tolerance": "10**12", **_SAME}),
    "bounds.curvature_radius": Call(lambda: {"gap": torch.ones(3), "grad_norm": torch.ones(3), "C": torch.ones(3)}),
    "bounds.extreme_value": Call(
        lambda: {"maxima": np.arange(30.0), "block_size": 2, "bootstrap": 5}, {"block_size": "10**12"}
    ),
    "bounds.fit_lmoments": Call(lambda: {"maxima": np.arange(30.0)}),
    "bounds.largest_eigenvalue": Call(
        lambda: {"product": lambda v: 2 * v, "start": torch.ones(3, 5, dtype=torch.float64), "steps": 3},
        {"tolerance": "10**12", "start": "2×3 tensor, 0 to 255"},
    ),
    "bounds.largest_radius": Call(
        lambda: {
            "gap": torch.ones(3),
            "grad_norm": torch.ones(3),
            "eps": torch.tensor([0.5, 1.0]),
            "omega": torch.tensor([0.1, 0.2]),
        },
        {"eps": ""},
    ),
    "bounds.least_images": Call(lambda: {"alpha": 0.1}),
    "bounds.quadratic_strength": Call(lambda: {"delta": 0.1, "C": 1.0}, {"C": "0"}),
    "bounds.sound_radius": Call(asked(), {"largest": "10**12"}, needs="auto_LiRPA"),
    "certify": Call(lambda: {"model": Counting(), "x": toys.images(), "sigma": 0.1, "n": 100}, {"radii": "0", **_SAME}),
    "clever": Call(asked(blocks=4, samples=4), _SAME),
    "diagnose": Call(
        lambda: asked(images=4, eps=0.1)(),
        # What an attack refuses of its images becomes a flag.
        {"x": "a NaN pixel, an infinite pixel, 0 to 255", "images": "same: 10**12", "eps": "10**12", **_SAME},
        heavy=True,
    ),
    "diagnosis.Masked": Call(lambda: {"model": Counting()}),
    "diagnosis.broken_models": Call(lambda: {"model": Counting()}),
    "diagnosis.is_proven_bug": Call(lambda: {"flags": toys.flags()}),
    "estimate_regularity": Call(
        lambda: {
            "model": Counting(),
            "data": (toys.images(), toys.labels()),
            "method": "local",
            "eps": [0.1, 0.3],
            "steps": 1,
            "rivals": 1,
        },
        {
            "eps": "2.5, 10**12",
            "threshold": "same: 0; -1",
            "block_size": "same: 10**12",
            "rivals": "0",
            "slack": "0, 10**12",
            "lipschitz_steps": "0",
            "limit": "same: 10**12",
            **_SAME,
        },
    ),
    "evaluate": Call(
        lambda: {"model": Counting(), "data": toys.data_set(), **toys.QUICK},
        {"radii": "0", "smoothing": "2.5, 10**12", "images": "10**12", "calibration_images": "same: 10**12", **_SAME},
        heavy=True,
    ),
    "evaluation.EvaluationOptions": Call(dict, {"smoothing": "2.5, 10**12", "radii": "0, 2.5, 10**12"}),
    "evaluation.EvaluationOptions.smoothing_key": Call(lambda: {"sigma": 0.25}, of=EvaluationOptions),
    "evaluation.load": Call(lambda: {"path": toys.files()["evaluation"]}),
    "evaluation.save": Call(lambda: {"evaluation": toys.evaluated(), "folder": "evaluation"}),
    "inspect_image": Call(
        lambda: {"model": Counting(), "x": toys.images()[0], "attacks": "deepfool", "samples": 100},
        {"y": "0"},
        nan=True,
        heavy=True,
    ),
    "inspection.draw": Call(lambda: {"inspection": toys.inspected(), "path": "i.png"}, heavy=True),
    "losses.cross_entropy": Call(lambda: {"logits": torch.ones(4, 4), "y": toys.labels()}, {"smoothing": "0"}),
    "losses.margin": Call(lambda: {"scores": torch.ones(4, 4), "y": toys.labels()}),
    "losses.margin_and_size": Call(lambda: {"scores": torch.ones(4, 4), "y": toys.labels()}),
    "losses.misclassified": Call(lambda: {"logits": torch.ones(4, 4), "y": toys.labels()}),
    "losses.probability_margin": Call(lambda: {"logits": torch.ones(4, 4), "y": toys.labels()}),
    "losses.soft_margin": Call(lambda: {"scores": torch.ones(4, 4), "y": toys.labels()}, {"sharpness": "10**12"}),
    "norms.Mahalanobis": Call(lambda: {"matrix": torch.eye(3)}, {"reach": "10**12", "usual_radii": "None"}),
    "norms.Mahalanobis.of_covariance": Call(lambda: {"covariance": torch.eye(3)}),
    "norms.Pixelwise": Call(dict, {"axis": "10**12"}),
    "norms.Weighted": Call(
        lambda: {"base": "l2", "weights": torch.ones(3, 1, 1)}, {"weights": "2.5, 10**12", "reach": "10**12"}
    ),
    "norms.robust_at": Call(lambda: {"distance": torch.ones(3), "eps": 0.1}, {"distance": "one missing, none"}),
    "norms.usual": Call(lambda: {"radii": (0.1, 0.2)}, {"radii": "2.5, 10**12, array of 2"}),
    "regularized_loss": Call(asked(eps=0.1, step=0), _STRENGTH | {"step": "0, 10**12"}, nan=True),
    "report": Call(lambda: {"evaluations": toys.evaluated()}, heavy=True),
    "smoothing.CertifyOptions": Call(lambda: {"sigma": 0.1}, {"radii": "0"}),
    "smoothing.CertifyOptions.settings": Call(of=lambda: gradreg.smoothing.CertifyOptions(sigma=0.1)),
    "smoothing.Settings": Call(
        lambda: {
            "sigma": 0.1,
            "alpha": 0.001,
            "n": 100,
            "n0": 10,
            "radii": None,
            "method": "cohen",
            "topk": 1,
            "seed": 0,
            "given_labels": False,
        }
    ),
    "smoothing.average_certified_radius": Call(
        lambda: {"certificates": toys.certified(), "y": toys.labels()}, {"y": _LABELS}
    ),
    "smoothing.certified_accuracy": Call(
        lambda: {"certificates": toys.certified(), "y": toys.labels(), "radii": [0.01]},
        _RADII | {"y": _LABELS},
    ),
    "smoothing.clopper_pearson": Call(lambda: {"hits": 3, "n": 10}, {"hits": "0", "n": "10**12"}),
    "smoothing.clopper_pearson_lower": Call(lambda: {"hits": 3, "n": 10, "alpha": 0.1}, _COUNTS),
    "smoothing.frequencies": Call(
        lambda: {"certificates": toys.certified(), "y": toys.labels(), "at": [0.9]},
        {"at": "0, array of 2", "y": _LABELS},
    ),
    "smoothing.merge": Call(lambda: {"parts": [toys.certified()]}),
    "smoothing.randomized_lower": Call(
        lambda: {"hits": 3, "n": 10, "alpha": 0.1, "uniform": 0.5},
        _COUNTS | {"uniform": "0, 1e-300, True, [], 2×3 tensor, array of 2"},
    ),
    "smoothing.sweep": Call(
        asked(sigmas=[0.1], radii=[0.01], n=100), {"sigmas": "2.5, 10**12, array of 2", "radii": "0", **_SAME}
    ),
    "threat": Call(lambda: {"name": "l2"}),
    "verdict": Call(lambda: {"flags": toys.flags()}),
    "violations": Call(lambda: {"bound": torch.ones(30), "distance": torch.full((30,), 2.0)}),
}


# A norm of each class that cannot be made without arguments.
_NORMS: dict[str, Any] = {
    "Mahalanobis": gradreg.norms.Mahalanobis(torch.eye(toys.images()[0].numel())),
    "Weighted": gradreg.norms.Weighted("l2", torch.ones(1, 1, 1)),
    "Threat": gradreg.threat("l2"),
}
_OF_ONE_SHAPE = ("Mahalanobis", "Weighted")
_METHODS = "norm|dual_norm|ascent|pull|climb|project|retract|sample|sample_surface|nearest|project_weighted"


def _of_a_norm(name: str, entry: Entry) -> Call:
    """A method of a norm, with images, a radius and a generator as far as it takes them."""
    first, *others = (each.name for each in entry.arguments)
    kind = name.split(".")[1]
    x = toys.images()
    more = {"radius": 0.5, "generator": torch.Generator().manual_seed(0), "weights": torch.ones(3, 1, 1)}
    more |= {"need": torch.full((len(x),), 0.1), "lower": -x, "upper": 1 - x}
    alone = kind not in _OF_ONE_SHAPE and not {"need", "weights"} & {*others}
    takes = {first: "0 to 255, 2×3 tensor" if alone else "0 to 255", "radius": "0, 10**12, 1e-300"}
    takes |= {"need": "a negative one", "lower": "0 to 255", "upper": "0 to 255"}
    norm = _NORMS[kind] if kind in _NORMS else getattr(gradreg.norms, kind)()
    return Call(lambda: {first: toys.images(), **{each: more[each] for each in others}}, takes, of=lambda: norm)


def _few(found: Attack) -> dict[str, int]:
    """Fewer steps of an attack than by default."""
    hints = get_type_hints(found.search, include_extras=True)
    return {name: 3 for name, hint in hints.items() if hint is Count}


# What needs no arguments, as most objectives and all attacks but for images, is called as it is.
_BY_DEFAULT = {
    name: Call(asked(**_few(entry.function)), AN_ATTACK) if isinstance(entry.function, Attack) else Call()
    for name, entry in entries().items()
    if isinstance(entry.function, Attack)
    or (isinstance(entry.function, type) and entry.arguments and not any(each.required for each in entry.arguments))
}

_OF_NORMS = {
    name: _of_a_norm(name, entry)
    for name, entry in entries().items()
    if re.fullmatch(rf"norms\.\w+\.({_METHODS})", name)
}
# Of every objective, in a step of a run.
_OF_OBJECTIVES = {
    name: Call(lambda: asked()() | {"at": toys.moment()}, {"y": "same: uint8, int32"}, of=partial(toys.objective, name))
    for name in entries()
    if re.fullmatch(r"objectives\.\w+\.__call__", name) and ".Objective." not in name
}

# Records that gradreg makes and users read.
MADE = {
    "AttackResult", "Certificates", "Evaluation", "Flag", "Inspection", "RegularizedLoss", "Verdict", "bounds.Bound",
    "bounds.Calibration", "bounds.Clever", "bounds.Curvature", "bounds.Eigenvalues", "bounds.ExtremeValue",
    "bounds.GEV", "bounds.Violations", "inspection.Nearest", "objectives.Draws", "objectives.Moment",
    "objectives.Outcome", "runs.OpenedModel", "runs.Subject", "smoothing.CertifiedAccuracy", "smoothing.Sweep",
    "training.EpochEnd", "training.Fitted", "training.StepEnd",
}  # fmt: skip
# What gradreg calls itself, with tensors and numbers of its own: in every step, or while it trains. As patterns.
INNER = (
    r"Classifier\.(ask|check_at_once|check_pixels|computing|fingerprint|forward|loss_and_gradient|normalise)",
    r"(diagnosis\.Masked|models\.Normalize|Averaged|ZeroShot)\.forward",
    r"norms\.\w+\.(backward|core|forward|gradient|gradient_to_core|from_core|parameters|to_core)",
    r"norms\.(Threat|per_image)",
    r"objectives\.\w+\.(calls|criterion|logits|losses|number|ramp|sample|joint_sample)|objectives\.Objective(\.__call__)?",
    r"runs\.\w+\.(__call__|make)|runs\.RunDirectory\.\w+|runs\.Schedule",
    # Those of JSONLLogger are tried; the others' take the same, and need packages.
    r"training\.(Logger|MLflowLogger|TensorBoardLogger|WandbLogger)\.(begin|log|end)|training\.(Logger|WandbLogger)",
)

CALLS = {name: call for name, call in _BY_DEFAULT.items() if name not in MADE} | MEASURES | _LIKE
CALLS |= _OF_NORMS | _OF_OBJECTIVES | TRAINING

# What may be passed in another form: images and labels for a data set, anybody's images for an attack's result.
OTHERWISE: dict[str, Call] = {
    "evaluate": Call(
        lambda: {"model": Counting(), "data": (toys.images(), toys.labels()), **toys.QUICK}, MEASURES["evaluate"].takes
    ),
    "Pool.update": Call(lambda: asked(result=1 - toys.images(), threat="l2")(), {"threat": "None"}, of=toys.pool),
    "fit": Call(
        lambda: {"model": Counting().train(), "data": (toys.images(), toys.labels()), "held_out": 1} | toys.BRIEF,
        TRAINING["fit"].takes,
    ),
}
