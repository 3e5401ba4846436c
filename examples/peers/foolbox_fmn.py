"""A gradreg network in foolbox, and what foolbox found back in a pool, verified."""

import foolbox
import torch

import gradreg

model = gradreg.load("cifar10-l2")
x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
y = model(x).argmax(1)

theirs = foolbox.attacks.L2FMNAttack(steps=50)
_, adversarial, _ = theirs(foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=None)

pool = gradreg.Pool(len(x))
pool.update(adversarial, model=model, x=x, y=y, name="foolbox", threat="l2")
pool.update(gradreg.attack(model, x, y, threat="l2", attacks="quick"))
print(pool.result)
