"""The zoo: models as strangers write them, each with an honest twin or with the sentence that refuses it.

Most are wrapped around one linear model, whose distances are known in closed form.
"""

from kinds import Odd
from odd_answers import MIXING, NUMBERS, OUTPUTS, RANDOMISED
from odd_builds import BUILT, PRECISIONS
from odd_conduct import STATE, WRITES

KINDS = {
    "writes": WRITES,
    "state": STATE,
    "randomised": RANDOMISED,
    "mixing": MIXING,
    "outputs": OUTPUTS,
    "numbers": NUMBERS,
    "precisions": PRECISIONS,
    "built": BUILT,
}
ZOO: dict[str, Odd] = {name: odd for kind in KINDS.values() for name, odd in kind.items()}
