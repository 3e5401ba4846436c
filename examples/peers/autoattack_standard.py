"""A gradreg network in AutoAttack by itself, and AutoAttack by its name among gradreg's attacks."""

import pyautoattack
import torch

import gradreg

model = gradreg.load("cifar10-l2")
x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
y = model(x).argmax(1)

reference = pyautoattack.AutoAttack(model, norm="L2", eps=1.5, device="cpu")
adversarial, _ = reference.run_standard_evaluation(x, y, batch_size=4)

pool = gradreg.Pool(len(x))
pool.update(adversarial, model=model, x=x, y=y, name="autoattack", threat="l2")
pool.update(gradreg.attack(model, x, y, threat="l2", attacks=["autoattack"], eps=1.5))
print(pool.result)
