from .counting import GradientPenalty as GradientPenalty
from .loss import regularized_loss as regularized_loss
from .result import RegularizedLoss as RegularizedLoss
