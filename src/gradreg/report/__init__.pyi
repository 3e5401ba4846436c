from .writing import report as report
