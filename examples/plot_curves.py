"""Draw learning curves from folders that learning_curve.py wrote.

    python examples/plot_curves.py runs/hopper-0 runs/hopper-1 --output curves.png

One panel per task, one line per algorithm: the mean over seeds of the evaluations' mean return, every seed as a thin
line behind it.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

Curve = dict[int, float]  # step -> mean return


def read_curve(folder: Path) -> Curve:
    returns: dict[int, list[float]] = defaultdict(list)
    with (folder / "evaluations.csv").open() as file:
        for row in csv.DictReader(file):
            returns[int(row["step"])].append(float(row["return"]))
    return {step: float(np.mean(values)) for step, values in returns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    curves: dict[str, dict[str, list[Curve]]] = defaultdict(lambda: defaultdict(list))
    for folder in options.folders:
        facts = json.loads((folder / "run.json").read_text())
        curves[facts["task"]][facts["algorithm"]].append(read_curve(folder))

    figure, axes = plt.subplots(1, len(curves), figsize=(5.2 * len(curves), 3.6), squeeze=False)
    for axis, (task, algorithms) in zip(axes[0], sorted(curves.items()), strict=True):
        for number, (algorithm, seeds) in enumerate(sorted(algorithms.items())):
            colour = f"C{number}"
            for curve in seeds:
                axis.plot(list(curve), list(curve.values()), color=colour, alpha=0.3, linewidth=0.8)
            steps = sorted(set.intersection(*(set(curve) for curve in seeds)))
            mean = [np.mean([curve[step] for curve in seeds]) for step in steps]
            plural = "" if len(seeds) == 1 else "s"
            axis.plot(steps, mean, color=colour, linewidth=2, label=f"{algorithm}, {len(seeds)} seed{plural}")
        axis.set(title=task, xlabel="environment steps", ylabel="return")
        axis.grid(alpha=0.3)
        axis.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
