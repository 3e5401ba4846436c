"""Ray Train with two workers: python examples/ray_train.py

`prepare_model` wraps the model in DistributedDataParallel, and `prepare_data_loader` shares out the batches. Weights
and the penalty's count go into Ray's checkpoint together.
"""

import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from reference import BATCH, EPOCHS, OPTIONS, compare, digits, loader, network, sgd

import gradreg


def train(config: dict[str, Any]) -> None:
    """What each worker runs."""
    model = ray.train.torch.prepare_model(network())
    batches = ray.train.torch.prepare_data_loader(loader(BATCH // config["workers"]))
    optimizer = sgd(model.parameters())
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    for epoch in range(EPOCHS):
        for x, y in batches:
            out = penalty(model, x, y)
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": model.module.state_dict(), "penalty": penalty.state_dict()}
            torch.save(state, Path(folder) / "state.pt")
            ray.train.report({"epoch": epoch, "penalty": float(out.penalty)}, checkpoint=Checkpoint(folder))


def main() -> None:
    """Train, and compare the checkpoint with a plain loop over whole batches in the order of Ray's shards."""
    scaling = ScalingConfig(num_workers=2, use_gpu=False)
    with tempfile.TemporaryDirectory() as folder:
        run = RunConfig(storage_path=folder)
        result = ray.train.torch.TorchTrainer(
            train, train_loop_config={"workers": 2}, scaling_config=scaling, run_config=run
        ).fit()
        with result.checkpoint.as_directory() as place:
            state = torch.load(Path(place) / "state.pt")
    model = network()
    model.load_state_dict(state["model"])
    assert state["penalty"] == {"steps": 4 * EPOCHS}
    x, y = digits()
    shards = [torch.arange(rank, len(x), 2).split(BATCH // 2) for rank in range(2)]  # DistributedSampler's, unshuffled
    rows = [torch.cat(pair) for pair in zip(*shards, strict=True)]
    compare(model, batches=[(x[each], y[each]) for each in rows])


if __name__ == "__main__":
    main()
