"""Learning curves of a run, for the terminal and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tsac.runs import records
from tsac.runs.evaluation import summary

HEIGHT = 8
BLOCKS = " ▁▂▃▄▅▆▇█"


class Mean(NamedTuple):
    step: int
    seconds: float
    episodes: int
    total: float
    success: float | None


def read_means(path: Path) -> list[Mean]:
    """One entry per evaluation."""
    grouped: dict[int, list[records.Row]] = {}
    for row in records.read_rows(path):
        grouped.setdefault(int(row["step"]), []).append(row)
    means = []
    for step, rows in sorted(grouped.items()):
        total, success = summary([records.to_episode(row) for row in rows])
        means.append(Mean(step, float(rows[0]["seconds"]), len(rows), total, success))
    return means


def as_text(means: list[Mean], width: int = 60) -> str:
    """Bars of the mean return, or of the success rate where the task knows one."""
    if not means:
        return "No evaluation yet."
    shown = means[:: max(1, -(-len(means) // width))]
    by_success = shown[0].success is not None
    values = [(mean.success or 0.0) if by_success else mean.total for mean in shown]
    low, high = (0.0, 1.0) if by_success else (min([*values, 0.0]), max(values))
    span = (high - low) or 1.0
    heights = [round((value - low) / span * HEIGHT * 8) for value in values]
    lines = []
    for row in reversed(range(HEIGHT)):
        label = f"{high:10.1f} " if row == HEIGHT - 1 else f"{low:10.1f} " if row == 0 else " " * 11
        lines.append(label + "".join(BLOCKS[min(max(height - 8 * row, 0), 8)] * 2 for height in heights))
    what = "success rate" if by_success else "return"
    lines.append(" " * 11 + f"{what}, {shown[0].step:,} to {shown[-1].step:,} steps")
    return "\n".join(lines)


def draw(path: Path, title: str, means: list[Mean]) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        message = 'A picture of the curve needs matplotlib, which is not installed: pip install "tsac[studies]"'
        raise ModuleNotFoundError(message) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    successes = [mean.success for mean in means if mean.success is not None]
    figure, axes = plt.subplots(1, 2 if successes else 1, figsize=(10.0 if successes else 5.6, 3.8), squeeze=False)
    steps = [mean.step for mean in means]
    axes[0][0].plot(steps, [mean.total for mean in means], marker="o", markersize=3)
    axes[0][0].set(title=title, xlabel="environment steps", ylabel="return, mean of the evaluation's episodes")
    if successes:
        axes[0][1].plot(steps, successes, marker="o", markersize=3)
        axes[0][1].set(xlabel="environment steps", ylabel="success at the last step", ylim=(-0.03, 1.03))
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
