from .cards.hub import publish as publish
from .writing import report as report
