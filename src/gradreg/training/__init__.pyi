from .fitting import Fitted as Fitted
from .fitting import fit as fit
from .fitting import train as train
