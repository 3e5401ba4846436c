"""What the paper reports (Finlay & Oberman, Tables 1 to 5), to quote beside our own rows.

CIFAR-10 with the ResNeXt-34 (2x32), top-1 errors; ImageNet with the ResNet-50, top-5 errors; no intervals, no seeds.
"""

from collections.abc import Mapping

from gradreg.report.tables.cells import number
from gradreg.report.tables.layout import Cell, Row

REMARKS: Mapping[str, str] = {
    "table-1": "Quoted rows are the paper's; of its L-bound errors the text says that all are 100 %.",
    "table-2": "Quoted rows are the paper's.",
    "table-3": "Quoted rows are the paper's; its §2.2 estimates ω by an extreme value fit to sampled maxima.",
    "table-4": "Quoted rows are the paper's, without σ, n and α; Cohen's and Salman's it quotes itself, the best over "
    "several σ.",
    "table-5": "Quoted rows are the paper's.",
}

# As printed, so that no digit is added or lost.
_TABLES: Mapping[str, Mapping[str, str]] = {
    "table-1": {
        "CIFAR-10: undefended": "4.36 % | 100 % | 100 % | 70.82 % | 98.94 % | 2.06",
        "CIFAR-10: l∞ 7-step AT, ε = 2/255": "6.17 % | 16.02 % | 100 % | 16.80 % | 53.90 % | 10.82",
        "CIFAR-10: l∞ 7-step AT, ε = 8/255": "16.33 % | 26.59 % | 58.32 % | 22.86 % | 46.02 % | 12.10",
        "CIFAR-10: squared l1 norm, λ = 0.1": "6.45 % | 19.40 % | 100 % | 24.92 % | 70.41 % | 5.22",
        "CIFAR-10: squared l1 norm, λ = 1": "9.02 % | 20.66 % | 55.30 % | 18.47 % | 58.69 % | 5.15",
        "ImageNet, top-5: undefended": "6.94 % | 100 % | 100 % | 90.21 % | 98.94 % | 20.30",
        "ImageNet, top-5: squared l2 norm, λ = 0.1": "7.66 % | 74.7 % | 100 % | 70.56 % | 97.53 % | 32.60",
        "ImageNet, top-5: squared l2 norm, λ = 1": "10.26 % | 63.7 % | 100 % | 52.79 % | 95.93 % | 33.87",
    },
    "table-2": {
        "CIFAR-10: undefended": "4.36 % | 0.006 | 0 | 0.12 | 2.06",
        "CIFAR-10: l∞ 7-step AT, ε = 2/255": "6.17 % | 0.05 | 0.36 | 0.66 | 10.82",
        "CIFAR-10: l∞ 7-step AT, ε = 8/255": "16.33 % | 0.18 | 0.55 | 0.74 | 12.10",
        "CIFAR-10: squared l2 norm, λ = 0.1": "8.03 % | 0.14 | 0.34 | 0.63 | 5.18",
        "CIFAR-10: squared l2 norm, λ = 1": "20.31 % | 0.30 | 0.50 | 0.81 | 5.08",
        "ImageNet, top-5: undefended": "6.94 % | 0.0363 | 0.5 | 0.55 | 20.30",
        "ImageNet, top-5: squared l2 norm, λ = 0.1": "7.66 % | 0.13 | 0.96 | 1.14 | 32.60",
        "ImageNet, top-5: squared l2 norm, λ = 1": "10.26 % | 0.26 | 1.23 | 1.75 | 33.87",
    },
    "table-3": {
        "CIFAR-10: undefended": "3.05 | 122.34 | 1.80 | 3.13",
        "CIFAR-10: l∞ 7-step AT, ε = 2/255": "0.63 | 11.96 | 0.08 | 0.32",
        "CIFAR-10: l∞ 7-step AT, ε = 8/255": "0.40 | 2.52 | 0.02 | 0.06",
        "CIFAR-10: squared l2 norm, λ = 0.1": "0.58 | 4.43 | 0.08 | 0.50",
        "CIFAR-10: squared l2 norm, λ = 1": "0.35 | 1.33 | 0.02 | 0.05",
        "ImageNet, top-5: undefended": "1.12 | 17.51 | 0.017 | 0.067",
        "ImageNet, top-5: squared l2 norm, λ = 0.1": "0.46 | 4.85 | 0.0055 | 0.022",
        "ImageNet, top-5: squared l2 norm, λ = 1": "0.27 | 2.12 | 0.0034 | 0.021",
    },
    "table-4": {
        "CIFAR-10: undefended": "90 % | 92 % | 96 % | 99 % | 100 % | 100 % | 100 % | 100 %",
        "CIFAR-10: squared l2 norm, λ = 1": "47 % | 63 % | 80 % | 90 % | 90 % | 90 % | 90 % | 90 %",
        "CIFAR-10: Cohen et al. 2019": "40 % | 57 % | 68 % | 77 % | 83 % | 86 % | 88 % | 90 %",
        "CIFAR-10: Salman et al. 2019": "26 % | 43 % | 52 % | 62 % | 67 % | 71 % | 75 % | 81 %",
    },
    "table-5": {
        "CIFAR-10: undefended": "100 % | 100 % | 100 % | 100 % | 100 % | 100 %",
        "CIFAR-10: l∞ 7-step AT, ε = 2/255": "19 % | 91 % | 100 % | 100 % | 100 % | 100 %",
        "CIFAR-10: l∞ 7-step AT, ε = 8/255": "31 % | 47 % | 61 % | 77 % | 100 % | 100 %",
        "CIFAR-10: squared l2 norm, λ = 0.1": "22 % | 99 % | 100 % | 100 % | 100 % | 100 %",
        "CIFAR-10: squared l2 norm, λ = 1": "33 % | 50 % | 65 % | 80 % | 98 % | 100 %",
    },
}
# The paper's k by data set; its errors stand beside ours of the same k only.
_TOP_K = {"CIFAR-10": 1, "ImageNet, top-5": 5}
_UNDEFENDED_HOURS = {"CIFAR-10": 2.06, "ImageNet, top-5": 20.30}


def rows(key: str, data: str, topk: int = 1) -> tuple[Row, ...]:
    """The paper's rows of the table with that key and that k: top-1 is on CIFAR-10, top-5 on ImageNet.

    Empty for tables that the paper does not have. An image folder may hold ImageNet, so its name decides nothing.
    """
    wanted = {name for name, k in _TOP_K.items() if k == topk and (data != "cifar10" or name == "CIFAR-10")}
    found = _TABLES.get(key, {})
    return tuple(_row(key, name, found[name].split(" | ")) for name in found if name.split(":")[0] in wanted)


def _row(key: str, name: str, figures: list[str]) -> Row:
    cells = [Cell(figure, _value(figure)) for figure in figures]
    if key == "table-1":
        # "Vacuous results (an upper bound of 100% test error at all distances)", says the text, and the table nothing.
        cells[1:1] = [Cell("100 %", 1.0), Cell("100 %", 1.0)]
        # The paper prints no ratios; they follow from its hours.
        cells.append(number(float(figures[-1]) / _UNDEFENDED_HOURS[name.split(":")[0]], unit="×"))
    return Row(f"paper, {name}", tuple(cells), quoted=True)


def _value(figure: str) -> float:
    # Divided as decimals would be: 16.80 % is the float nearest to 0.168.
    return round(float(figure[:-2]) / 100, 6) if figure.endswith(" %") else float(figure)
