"""`gradreg.fit`: the user's own network, loaders and objective, and what the options of a step mean."""

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from tiny import Plain, digits, network, tiny_fit, weights
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import gradreg
from gradreg.data import DataSet, Images
from gradreg.data import load as load_data
from gradreg.errors import ConfigError, DataError, MissingPackageError, ModelError, RunError
from gradreg.objectives import Adversarial, Gradient, Objective, Trades, Undefended
from gradreg.processes import Processes
from gradreg.provenance import commit, processor
from gradreg.runs import load
from gradreg.runs.optimizers import SGD, Muon
from gradreg.runs.settings import Settings
from gradreg.training.optimizers import Optimizers
from gradreg.training.step import Learner

ALONE = Processes(0, 1, torch.device("cpu"))


def plain_net() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.GELU(), nn.Linear(12, 10))


def batch(count: int = 12) -> tuple[Tensor, Tensor]:
    images = digits(count)
    return images.floats(), images.labels


def test_own_network_loaders_and_objective_and_nothing_left_behind() -> None:
    x, y = batch(40)
    loader = DataLoader(TensorDataset(x, y), 8, shuffle=True)
    model, state = plain_net(), torch.get_rng_state()
    before = [weight.clone() for weight in model.parameters()]
    fitted = gradreg.fit(model, (loader, [(x, y)]), Plain(), epochs=2, optimizer={"name": "sgd", "lr": 0.1})
    assert torch.equal(torch.get_rng_state(), state)
    assert fitted.run is None
    assert [row["epoch"] for row in fitted.metrics] == [1, 2]
    assert fitted.best["clean"] == max(row["clean"] for row in fitted.metrics)
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_images_and_labels_in_tensors_or_arrays_are_trained_on_as_a_data_set_is() -> None:
    """Same split, same order, same pixels: the same weights to the bit."""
    part = digits(60)
    x, y = part.floats(), part.labels
    channels_last = part.pixels.permute(0, 2, 3, 1).numpy()
    kept, held = part.split(20, 0)
    found = []
    for data in (
        part,
        (x, y),
        (part.pixels, y),
        (channels_last, y.to(torch.int32).numpy()),
        ((kept.floats(), kept.labels), (held.floats(), held.labels)),
    ):
        model = plain_net()
        tiny_fit(model=model, data=data, epochs=1)
        found.append(torch.cat([weight.flatten() for weight in model.parameters()]))
    assert all(torch.equal(each, found[0]) for each in found)


def test_bytes_in_tensors_are_augmented_and_other_floats_are_not() -> None:
    part = digits(60)
    weights = []
    for data in (part, (part.floats(), part.labels)):
        model = plain_net()
        tiny_fit(model=model, data=data, epochs=1, augment=("flip",))
        weights.append(next(model.parameters()))
    assert torch.equal(*weights)
    with pytest.raises(DataError, match="must be bytes, or bytes over 255"):
        tiny_fit(data=(part.floats() / 3, part.labels), augment=("flip",))


def test_soft_labels_in_a_tensor_go_to_the_criterion() -> None:
    x, y = batch(60)
    soft = torch.nn.functional.one_hot(y, 10).float() * 0.9 + 0.01
    criterion = partial(torch.nn.functional.cross_entropy, reduction="none")
    fitted = tiny_fit(data=(x, soft), epochs=1, criterion=criterion, objective="undefended", score=lambda a, b: b[:, 0])
    assert fitted.metrics[0]["held_out"] == 20
    with pytest.raises(DataError, match=r"one target per image; got targets of shape \(59, 10\) for 60 images"):
        tiny_fit(data=(x, soft[1:]), epochs=1)


def test_data_sets_are_split_and_the_test_part_is_never_looked_at() -> None:
    part = digits(60)
    with pytest.raises(ConfigError, match="40 images do not fill one batch of 64"):
        tiny_fit(data=DataSet("mine", part, part), batch_size=64)
    fitted = tiny_fit(data=DataSet("mine", part, part), epochs=1)
    assert fitted.metrics[0]["held_out"] == 20
    assert fitted.metrics[0]["step"] == 2


def test_every_epoch_is_written_down(tmp_path: Path) -> None:
    row = tiny_fit(tmp_path / "run", epochs=1).metrics[0]
    wanted = {"loss", "clean_loss", "penalty", "train_grad_norm", "train_accuracy", "clean", "probe", "single_step"}
    wanted |= {"grad_norm", "grad_norm_max", "linearity_error", "zero_gradients", "images_per_second", "hours", "best"}
    assert wanted <= row.keys()
    assert row["loss"] == pytest.approx(row["clean_loss"] + row["penalty"], abs=1e-5)
    assert (row["commit"], row["machine"]) == (commit(), processor())
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "metrics.jsonl", "last.safetensors", "best.safetensors"} <= files


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data": [1, 2]}, ConfigError, "data must be a data set of gradreg.data, .* or a pair .*; got a list"),
        (
            {"data": (1, 2, 3)},
            ConfigError,
            r"data must be a pair \(.*\); got a tuple of 3",
        ),
        ({"data": (iter([]), [])}, DataError, "must have a length.*; got a list_iterator without one"),
        ({"data": "cifar10"}, ConfigError, r"got 'cifar10': load it, gradreg.data.load\('cifar10'\)"),
        ({"data": {"train": [], "test": []}}, ConfigError, "got parts train, test: pass one of them, or a pair"),
        ({"data": ([], [])}, DataError, "must have a length.*; got no batches"),
        ({"model": nn.Identity()}, ConfigError, "has no parameters"),
        ({"epoch": 3}, ConfigError, r"There is no setting 'epoch' \(did you mean 'epochs'"),
        ({"accumulate": 4, "batch_size": 6}, ConfigError, "batch_size must be divisible by accumulate = 4; got 6"),
    ],
)
def test_mistakes(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tiny_fit(**arguments)


def test_uneven_micro_batches_of_a_users_loader_are_refused() -> None:
    x, y = batch(10)
    with pytest.raises(ConfigError, match=r"divisible by accumulate = 4; got a batch of 10 images"):
        tiny_fit(data=([(x, y)], [(x, y)]), accumulate=4)


@pytest.mark.parametrize("objective", [Undefended(), Adversarial(eps=0.1, steps=2)])
def test_accumulation_gives_the_gradient_of_the_whole_batch(objective: Objective) -> None:
    x, y = batch()
    found = []
    for parts in (1, 3):
        model = plain_net()
        learner = Learner(model, Settings(objective=objective, accumulate=parts, batch_size=12, optimizer=SGD()), ALONE)
        for step in range(3):
            learner.step(x, y, (0, step), step, 0.0, 1.0)
        found.append(list(model.parameters()))
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_update() -> None:
    model = plain_net()
    before = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    optimizer = SGD(lr=1.0, momentum=0.0, weight_decay=0.0)
    Learner(model, Settings(optimizer=optimizer, clip_norm=1e-3), ALONE).step(*batch(), (0,), 0, 0.0, 0.5)
    moved = torch.cat([weight.detach().flatten() for weight in model.parameters()]) - before
    assert_close(moved.norm().item(), 0.5e-3, rtol=1e-3, atol=0)


def gradient_norm(model: nn.Module, loss: Tensor) -> float:
    return float(nn.utils.get_total_norm(torch.autograd.grad(loss, list(model.parameters()))))


def test_the_fraction_of_clipped_steps_is_logged() -> None:
    """A lazy penalty shows why: a bound that only its steps reach takes from the penalty alone."""
    x, y = batch()
    model = plain_net()
    plain = gradient_norm(model, nn.functional.cross_entropy(model(x), y))
    with_penalty = gradient_norm(model, gradreg.regularized_loss(model, x, y, threat="l2", eps=4 * 4.0, h=0.1).loss)
    assert plain < with_penalty
    optimizer = SGD(lr=0.0)  # the weights stay, so all steps of a kind have the same gradient
    lazy = Gradient(threat="l2", eps=4.0, h=0.1, lazy=4)
    for bound, share in ((0.99 * plain, 1.0), (0.99 * with_penalty, 0.25), (1.01 * with_penalty, 0.0), (None, None)):
        learner = Learner(plain_net(), Settings(objective=lazy, optimizer=optimizer, clip_norm=bound), ALONE)
        for step in range(4):
            learner.step(x, y, (0,), step, 0.0, 1.0)
        assert learner.means().get("clipped") == share


def test_the_average_follows_by_formula() -> None:
    model = plain_net()
    learner = Learner(model, Settings(ema=0.5), ALONE)
    assert learner.average is not None
    mean = [weight.detach().clone() for weight in model.parameters()]
    for step in range(3):
        learner.step(*batch(), (0, step), step, 0.0, 1.0)
        decay = min(0.5, (2 + step) / (11 + step))
        mean = [decay * m + (1 - decay) * w.detach() for m, w in zip(mean, model.parameters(), strict=True)]
    for a, b in zip(learner.average.model.parameters(), mean, strict=True):
        assert_close(a, b)
    assert learner.eval_model is learner.average.model


def _with_weight_norm(net: nn.Module) -> nn.Module:
    layer = next(module for module in net.modules() if isinstance(module, nn.Linear))
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(layer)
    return net


def _pruned(net: nn.Module) -> nn.Module:
    layer = next(module for module in net.modules() if isinstance(module, nn.Linear))
    prune.random_unstructured(layer, "weight", 0.3)
    return net


def _keeping_features(net: nn.Module) -> nn.Module:
    net.features = [net(batch()[0])]  # type: ignore[assignment]
    return net


@pytest.mark.parametrize("change", [_with_weight_norm, _pruned, _keeping_features])
def test_the_average_of_a_model_that_holds_what_it_computed(change: Callable[[nn.Module], nn.Module]) -> None:
    """Its layers compute their weights anew, from the averaged ones."""
    learner = Learner(change(plain_net()), Settings(ema=0.5), ALONE)
    learner.step(*batch(), (0,), 0, 0.0, 1.0)
    assert learner.average is not None
    averaged, reference = learner.average.model, change(plain_net())
    reference.load_state_dict(averaged.state_dict())
    assert_close(averaged(batch()[0]), reference(batch()[0]))


def test_a_model_that_cannot_be_copied_has_no_average() -> None:
    model = plain_net()
    model.lock = Lock()  # type: ignore[assignment]
    with pytest.raises(ModelError, match="cannot be copied, which ema needs"):
        Learner(model, Settings(ema=0.5), ALONE)


@pytest.mark.parametrize("objective", [Gradient("linf", eps=0.1, noise=0.1), Adversarial(steps=2), Trades(steps=2)])
def test_the_average_is_torchs_whatever_is_trained(objective: Objective) -> None:
    """With the decay that begins low, for running statistics too; other buffers are the network's own."""
    model = network()
    learner = Learner(model, Settings(ema=0.6, objective=objective), ALONE)

    def follow(mean: Tensor, weight: Tensor, count: Tensor | int) -> Tensor:
        share = 1 - min(0.6, (1 + int(count)) / (10 + int(count)))
        return mean.lerp(weight, share) if weight.is_floating_point() else weight

    reference = AveragedModel(model, avg_fn=follow, use_buffers=True)
    reference.update_parameters(model)  # the first one is copied
    x, y = torch.rand(8, 1, 28, 28), torch.arange(8)
    for step in range(12):
        learner.step(x, y, (0, step), step, 0.0, 1.0)
        reference.update_parameters(model)
    averaged = learner.eval_model
    assert_close(list(averaged.parameters()), list(reference.module.parameters()))
    assert not torch.allclose(next(averaged.parameters()), next(model.parameters()))
    statistics = [name for name, _ in averaged.named_buffers() if "running" in name]
    assert statistics
    for name, buffer in averaged.named_buffers():
        followed = name in statistics
        expected = reference.module.get_buffer(name) if followed else model.get_buffer(name)
        assert_close(buffer, expected)
        assert torch.allclose(buffer.double(), model.get_buffer(name).double()) is not followed


def test_the_average_answers_as_it_does_with_statistics_of_its_own() -> None:
    """While the weights move, the network's own statistics are of activations that the averaged weights do not have."""
    torch.manual_seed(0)
    train = load_data("mnist5k").train
    assert isinstance(train, Images)
    hidden = [(nn.Linear(width, 32), nn.BatchNorm1d(32), nn.ReLU()) for width in (784, 32)]
    model = nn.Sequential(nn.Flatten(), *hidden[0], *hidden[1], nn.Linear(32, 10))
    learner = Learner(model, Settings(ema=0.99, optimizer=SGD(lr=0.5)), ALONE)
    for step, rows in enumerate(torch.randint(len(train), (300, 32))):
        learner.step(train.floats(rows), train.labels[rows], (0, step), step, 0.0, 1.0)
    x, averaged = train.floats(slice(1024)), learner.eval_model.eval()
    exact = deepcopy(averaged).train()(x)
    found = averaged(x)
    for place in (2, 5):
        averaged.get_submodule(str(place)).load_state_dict(dict(model[place].named_buffers()), strict=False)
    with_the_networks = averaged(x)
    assert (found - exact).norm() < 0.7 * (with_the_networks - exact).norm()


@pytest.mark.parametrize(("decay", "decayed"), [("all", 6), ("no-bias", 3), ("matrices", 2)])
def test_weight_decay_goes_where_it_is_wanted(decay: Any, decayed: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    (member,) = Optimizers(SGD(decay=decay, weight_decay=0.1), model).members
    counts = {group["weight_decay"]: len(group["params"]) for group in member.param_groups}
    assert counts.get(0.1) == decayed
    assert sum(counts.values()) == 6


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_muon_moves_filters_as_matrices(layout: torch.memory_format) -> None:
    conv = nn.Conv2d(3, 4, 3, bias=False)
    model = nn.Sequential(conv, nn.Flatten(), nn.Linear(4, 2, bias=False)).to(memory_format=layout)  # type: ignore[call-overload]
    matrix = nn.Parameter(conv.weight.detach().contiguous().flatten(1).clone())
    gradient = torch.randn(4, 3, 3, 3)
    reference = torch.optim.Muon([matrix], lr=0.02, weight_decay=0.01)
    optimizers = Optimizers(Muon(), model)
    for _ in range(2):
        matrix.grad, conv.weight.grad = gradient.flatten(1).clone(), gradient.to(memory_format=layout).clone()
        reference.step()
        optimizers.step(1.0)
    assert conv.weight.grad is None
    assert_close(conv.weight.detach().contiguous().flatten(1), matrix.detach(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("options", [{"amp": "bf16"}, {"channels_last": True}, {"label_smoothing": 0.1}])
def test_options_that_only_have_to_work(options: dict[str, Any], tmp_path: Path) -> None:
    fitted = tiny_fit(tmp_path / "run", epochs=1, **options)
    assert fitted.metrics[0]["loss"] > 0
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run").values())


def test_compiled_training(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: compiled(model, backend="eager"))
    x, y = batch(16)
    a, b = plain_net(), plain_net()
    for model, choice in ((a, False), (b, True)):
        gradreg.fit(model, ([(x, y)], [(x, y)]), {"name": "gradient", "eps": 0.5}, epochs=1, compile=choice)
    assert_close(list(a.parameters()), list(b.parameters()))


def test_a_run_of_a_python_model_cannot_be_rebuilt_from_its_recipe(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "run", epochs=1)
    with pytest.raises(RunError, match="was made in Python"):
        load(tmp_path / "run")
    torch.testing.assert_close(
        load(tmp_path / "run", architecture=network(seed=1)).state_dict(), weights(tmp_path / "run", "best")
    )


def test_a_board_that_cannot_be_written_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'gradreg\[tensorboard\]'"):
        tiny_fit(tmp_path / "run", epochs=1, tensorboard=True)
    assert not (tmp_path / "run").exists()
