"""Valid calls of what makes data, networks and runs."""

import torch
from torch import nn

import gradreg
from arguments import toys
from arguments.call import Call
from arguments.toys import Counting

_BATCHES = {"rank": "0", "workers": "0", "images": "", "batch_size": "10**12"}

TRAINING: dict[str, Call] = {
    "build": Call(lambda: {"name": "small", "classes": 4}),
    "data.Batches": Call(lambda: {"images": toys.part(4, 1), "batch_size": 2}, _BATCHES),
    "data.DataSet": Call(lambda: {"name": "toy", "train": toys.part(4, 1), "test": toys.part(4, 2)}),
    "data.FolderBatches": Call(lambda: {"folder": toys.folder(), "batch_size": 1}, _BATCHES),
    "data.ImageFolder": Call(
        lambda: {"paths": ("a.png",), "labels": torch.tensor([0]), "classes": ("a", "b"), "source": "toy"},
        {"labels": "int32, uint8"},
    ),
    "data.ImageFolder.floats": Call(lambda: {"index": [0]}, of=toys.folder),
    "data.ImageFolder.split": Call(lambda: {"n": 1, "seed": 0}, of=toys.folder),
    "data.ImageFolder.subset": Call(lambda: {"index": [0]}, of=toys.folder),
    "data.Images": Call(lambda: {name: getattr(toys.part(4, 1), name) for name in ("pixels", "labels", "classes")}),
    "data.Images.floats": Call(lambda: {"index": [0]}, of=lambda: toys.part(4, 1)),
    "data.Images.split": Call(lambda: {"n": 1, "seed": 0}, of=lambda: toys.part(4, 1)),
    "data.Images.subset": Call(lambda: {"index": [0]}, of=lambda: toys.part(4, 1)),
    "data.RectangularBatches": Call(lambda: {"folder": toys.folder(), "batch_size": 1}, _BATCHES),
    "data.batches": Call(lambda: {"part": toys.part(4, 1), "batch_size": 2}, _BATCHES),
    "data.load": Call(lambda: {"name": "mnist5k"}),
    "export_onnx": Call(
        lambda: {"model": Counting(), "path": "model.onnx", "shape": toys.SHAPE}, needs="onnx", heavy=True
    ),
    "fit": Call(
        lambda: {"model": Counting().train(), "data": toys.part(40, 1), "held_out": 4} | toys.BRIEF, heavy=True
    ),
    "load": Call(lambda: {"run": "cifar10-l2"}),
    "Averaged": Call(lambda: {"model": nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()}),
    "ZeroShot": Call(
        lambda: {"encoder": nn.Flatten().eval(), "text_features": torch.rand(3, 48)},
        {"text_features": "2×3 tensor", "scale": "10**12"},
    ),
    "models.Normalize": Call(
        lambda: {"mean": [0.5], "std": [0.5]}, {"mean": "0, -1, 10**12, array of 2", "std": "10**12, array of 2"}
    ),
    "models.activation": Call(lambda: {"name": "gelu"}),
    "models.kinks": Call(
        lambda: {"model": nn.Flatten(), "x": toys.images()},
        {"x": "same: 2×3 tensor, a NaN pixel, an infinite pixel, 0 to 255"},
    ),
    "objectives.Gradient": Call(lambda: {"eps": 0.1}, {"eps": "0"}),
    "objectives.describe": Call(lambda: {"objective": gradreg.objectives.Undefended()}),
    "publish": Call(
        lambda: {"model": Counting(), "evaluation": toys.files()["evaluation"], "folder": toys.unused()}, heavy=True
    ),
    "runs.Config": Call(lambda: {"data": "mnist5k", "model": {"name": "small"}}),
    "runs.Config.during": Call(lambda: {"epoch": 0}, {"epoch": "0, 10**12"}, of=toys.config),
    "runs.Linear": Call(lambda: {"knots": ((0.0, 1.0), (1.0, 0.0))}),
    "runs.Phase": Call(lambda: {"start": 0}),
    "runs.Piecewise": Call(lambda: {"milestones": (1.0,)}),
    "runs.Probe": Call(lambda: {"threat": "l2", "eps": 0.5}, {"eps": "10**12"}),
    "runs.RunDirectory": Call(lambda: {"folder": "run"}),
    "runs.open_model": Call(
        lambda: {"model": str(toys.files()["weights"]), "data": "mnist5k", "architecture": "small"}
    ),
    "swap_activations": Call(lambda: {"model": nn.Sequential(nn.ReLU())}),
    "swap_pooling": Call(lambda: {"model": nn.Sequential(nn.MaxPool2d(2))}),
    "training.JSONLLogger.begin": Call(lambda: {"settings": {}, "epoch": 0}, of=toys.logger),
    "training.JSONLLogger.log": Call(lambda: {"numbers": {"loss": 0.5}, "epoch": 1}, of=toys.logger),
    "training.JSONLLogger.end": Call(lambda: {"error": None}, of=toys.logger),
    "training.JSONLLogger": Call(lambda: {"path": "log.jsonl"}),
    "training.MLflowLogger": Call(needs="mlflow"),
    "training.TensorBoardLogger": Call(lambda: {"folder": "board"}, needs="tensorboard"),
    "training.train": Call(lambda: {"config": toys.config(held_out=3980, batch_size=20), "run": "run"}, heavy=True),
}
