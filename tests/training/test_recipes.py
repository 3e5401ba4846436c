"""Every recipe can be begun: its network is built and takes a step of its objective."""

import pytest
import torch

from gradreg.models import build
from gradreg.models.registry import complete
from gradreg.processes import Processes
from gradreg.runs import recipes
from gradreg.training.step import Learner

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.mark.parametrize("name", recipes.names())
def test_a_step_of_every_recipe(name: str) -> None:
    config = recipes.config(name)
    grey = "mnist" in name
    options = complete(config.model, 10, 1 if grey else 3)
    model = build(options.pop("name"), **options)
    x = torch.rand(4, 1, 28, 28) if grey else torch.rand(4, 3, 16, 16)
    learner = Learner(model, config, ALONE)
    outcome = learner.step(x, torch.tensor([1, 2, 3, 4]), (0, 0), 0, 7.0, config.schedule(7.0, config.epochs))
    assert outcome.loss.isfinite()
    assert learner.is_finite()
