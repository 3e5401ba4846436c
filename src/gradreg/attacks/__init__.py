"""Attacks: how near is the nearest image that the model gets wrong?"""

from gradreg.attacks.apgd import apgd
from gradreg.attacks.autoattack import autoattack
from gradreg.attacks.boundary import boundary
from gradreg.attacks.carlini_wagner import carlini_wagner
from gradreg.attacks.ddn import ddn
from gradreg.attacks.deepfool import deepfool
from gradreg.attacks.fmn import fmn
from gradreg.attacks.logbarrier import logbarrier
from gradreg.attacks.pgd import pgd
from gradreg.attacks.polish import polish
from gradreg.attacks.pool import Pool, pooled
from gradreg.attacks.result import AttackResult
from gradreg.attacks.square import square
from gradreg.attacks.suite import attack

__all__ = [
    "AttackResult",
    "Pool",
    "apgd",
    "attack",
    "autoattack",
    "boundary",
    "carlini_wagner",
    "ddn",
    "deepfool",
    "fmn",
    "logbarrier",
    "pgd",
    "polish",
    "pooled",
    "square",
]
