"""A gradreg network in ART, and what ART found back in a pool, verified."""

import torch
from art.attacks.evasion import ProjectedGradientDescent
from art.estimators.classification import PyTorchClassifier

import gradreg

model = gradreg.load("cifar10-l2")
x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
y = model(x).argmax(1)

estimator = PyTorchClassifier(
    model, loss=torch.nn.CrossEntropyLoss(), input_shape=(3, 32, 32), nb_classes=10, clip_values=(0, 1)
)
theirs = ProjectedGradientDescent(estimator, norm=2, eps=1.5, eps_step=0.2, max_iter=20, verbose=False)
adversarial = theirs.generate(x.numpy(), y.numpy())

pool = gradreg.Pool(len(x))
pool.update(adversarial, model=model, x=x, y=y, name="art", threat="l2")
pool.update(gradreg.attack(model, x, y, threat="l2", attacks="quick"))
print(pool.result)
