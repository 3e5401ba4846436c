"""Optional packages: which part of gradreg needs which, and how to get one that is missing."""

from importlib import import_module
from typing import NamedTuple

from gradreg.errors import MissingPackageError, words_of


class Extra(NamedTuple):
    """The extra of gradreg that installs a package, and what needs it."""

    name: str
    purpose: str


EXTRAS = {
    "scipy": Extra("stats", "confidence intervals, certificates and fitted bounds"),
    "jinja2": Extra("report", "the HTML page of reports"),
    "matplotlib": Extra("plots", "figures as files"),
    "PIL": Extra("folder", "image files"),
    "tensorboard": Extra("tensorboard", "training curves in TensorBoard"),
    "mlflow": Extra("mlflow", "training curves in MLflow"),
    "wandb": Extra("wandb", "training curves in Weights & Biases"),
    "timm": Extra("timm", "models named timm:NAME"),
    "torchvision": Extra("torchvision", "models named torchvision:NAME"),
    "transformers": Extra("hf", "models named hf:NAME"),
    "pyautoattack": Extra("bench", "AutoAttack"),
    "pandas": Extra("pandas", "results as tables of pandas"),
    "onnx": Extra("onnx", "networks as ONNX files"),
    "onnxscript": Extra("onnx", "networks as ONNX files"),
    "onnxruntime": Extra("onnx", "networks as ONNX files"),
}


def need(package: str, what: str) -> None:
    """Raise an error that names the extra if the package is missing; called before work that would end with it."""
    try:
        import_module(package)
    except (ImportError, OSError) as error:  # OSError: a library that it loads is missing or damaged
        extra = EXTRAS[package].name
        why = "" if isinstance(error, ModuleNotFoundError) and error.name == package else f" ({words_of(error)})"
        raise MissingPackageError(
            f"{what} needs {package}, which cannot be imported{why}: run pip install 'gradreg[{extra}]'."
        ) from error
