"""Every objective by its name in recipes: a new one is a file and a line of this table."""

from gradreg.objectives.adversarial import Adversarial
from gradreg.objectives.fast import NoisyStep, RandomStartStep
from gradreg.objectives.free import Free
from gradreg.objectives.gradient import Gradient
from gradreg.objectives.label_start import LabelStart
from gradreg.objectives.noise import Noise
from gradreg.objectives.prior_guided import PriorGuided
from gradreg.objectives.trades import Trades
from gradreg.objectives.undefended import Undefended

OBJECTIVES: dict[str, type] = {
    "undefended": Undefended,
    "gradient": Gradient,
    "adversarial": Adversarial,
    "fgsm-rs": RandomStartStep,
    "n-fgsm": NoisyStep,
    "free": Free,
    "trades": Trades,
    "label-start": LabelStart,
    "prior-guided": PriorGuided,
    "noise": Noise,
}
