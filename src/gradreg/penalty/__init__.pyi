from .counting import GradientPenalty as GradientPenalty
from .loss import RegularizedLoss as RegularizedLoss
from .loss import regularized_loss as regularized_loss
