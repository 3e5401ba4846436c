from .broken import Masked as Masked
from .broken import broken_models as broken_models
from .diagnose import diagnose as diagnose
from .flags import Flag as Flag
from .flags import Verdict as Verdict
from .flags import is_proven_bug as is_proven_bug
from .flags import verdict as verdict
