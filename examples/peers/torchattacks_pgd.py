"""A gradreg network in torchattacks, and what torchattacks found back in a pool, verified."""

import torch
import torchattacks

import gradreg

model = gradreg.load("cifar10-l2")
x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
y = model(x).argmax(1)

adversarial = torchattacks.PGDL2(model, eps=1.5, alpha=0.2, steps=20)(x, y)

pool = gradreg.Pool(len(x))
pool.update(adversarial, model=model, x=x, y=y, name="torchattacks", threat="l2")
pool.update(gradreg.attack(model, x, y, threat="l2", attacks="quick"))
print(pool.result)
