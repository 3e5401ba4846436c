from .loss import RegularizedLoss as RegularizedLoss
from .loss import regularized_loss as regularized_loss
