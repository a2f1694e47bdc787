"""Runs side by side: their records in one small folder, and a figure drawn from that folder alone."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsac.runs import curves
from tsac.runs.folder import FolderError, RunFolder
from tsac.studies.statistics import Estimate, interquartile_mean

KEPT = ("run.json", "evaluations.csv")
SAME_CURVE = (  # settings that make no other curve
    "seed", "steps", "evaluate_every", "evaluation_episodes", "final_episodes", "evaluation_processes",
    "checkpoint_every", "log_every", "threads", "device", "processes", "preset", "reading", "scale",
)  # fmt: skip


class Curve(NamedTuple):
    """The evaluations that all seeds of an algorithm have on a task."""

    seeds: list[int]
    steps: NDArray[np.int64]
    seconds: NDArray[np.float64]  # mean over the seeds
    scores: NDArray[np.float64]  # [seeds, 1, evaluations]
    of_success: bool


def collect(folders: list[Path], output: Path) -> list[Path]:
    """Copy what a figure is made from; folders that are in ``output`` already stay as they are."""
    collected = []
    for folder in folders:
        RunFolder(folder).read_facts()
        target = output / folder.resolve().name
        if target.resolve() != folder.resolve():
            for name in KEPT:
                if not (folder / name).exists():
                    raise FolderError(f"{folder} has no {name} yet.")
            known = target / "run.json"
            if known.exists() and known.read_bytes() != (folder / "run.json").read_bytes():
                raise FolderError(f"{target} holds the records of another run of that name: rename {folder}.")
            target.mkdir(parents=True, exist_ok=True)
            for name in KEPT:
                shutil.copyfile(folder / name, target / name)
        collected.append(target)
    return list(dict.fromkeys(collected))  # the same run may have been named twice


def read_curves(folders: list[Path]) -> dict[str, dict[str, Curve]]:
    """By task and algorithm; runs of an algorithm with other settings get a curve of their own.

    The success rate counts where a task has one, the return elsewhere.
    """
    grouped: dict[tuple[str, str], list[tuple[dict[str, Any], list[curves.Mean]]]] = defaultdict(list)
    for folder in folders:
        spec: dict[str, Any] = RunFolder(folder).read_facts()["spec"]
        if any(name not in spec for name in ("task", "algorithm", "seed")):
            raise FolderError(f"{folder / 'run.json'} does not say which task, algorithm and seed it is of.")
        means = curves.read_means(folder / "evaluations.csv")
        if means:
            grouped[spec["task"], spec["algorithm"]].append((spec, means))
    found: dict[str, dict[str, Curve]] = defaultdict(dict)
    for (task, algorithm), runs in sorted(grouped.items()):
        labelled: dict[str, list[tuple[int, list[curves.Mean]]]] = defaultdict(list)
        for label, (spec, means) in zip(_labels(algorithm, [spec for spec, _ in runs]), runs, strict=True):
            if spec["seed"] in [seed for seed, _ in labelled[label]]:
                raise FolderError(f"There are two runs of {label} on {task} with seed {spec['seed']}: leave one out.")
            labelled[label].append((spec["seed"], means))
        for label, same in sorted(labelled.items()):
            found[task][label] = _curve(f"{label} on {task}", same)
    return dict(found)


def _labels(algorithm: str, specs: list[dict[str, Any]]) -> list[str]:
    """The algorithm, and the settings in which its runs differ."""
    settings = [_flat({name: value for name, value in spec.items() if name not in SAME_CURVE}) for spec in specs]
    names = list(dict.fromkeys(name for flat in settings for name in flat))
    differing = [name for name in names if len({repr(flat.get(name)) for flat in settings}) > 1]
    labels = []
    for flat in settings:
        said = ", ".join(f"{name.split('.')[-1]} {flat[name]}" for name in differing if name in flat)
        labels.append(f"{algorithm} ({said})" if said else algorithm)
    return labels


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _curve(what: str, runs: list[tuple[int, list[curves.Mean]]]) -> Curve:
    by_step = [{mean.step: mean for mean in means} for _, means in sorted(runs)]
    steps = sorted(set.intersection(*(set(means) for means in by_step)))
    if not steps:
        raise FolderError(f"The runs of {what} have no evaluation at the same step.")
    of_success = all(mean.success is not None for means in by_step for mean in means.values())
    scores = [[means[s].success if of_success else means[s].total for s in steps] for means in by_step]
    seconds = [[means[s].seconds for s in steps] for means in by_step]
    return Curve(
        [seed for seed, _ in sorted(runs)],
        np.array(steps),
        np.mean(np.array(seconds), axis=0),
        np.array(scores, dtype=np.float64)[:, None, :],
        of_success,
    )


def table(grouped: dict[str, dict[str, Curve]]) -> str:
    """The mean over the last five evaluations: interquartile mean over seeds, interval, every seed."""
    lines = ["| task | algorithm | seeds | last five evaluations, IQM (95 % interval) | each seed | seconds |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for task, algorithms in grouped.items():
        for algorithm, curve in algorithms.items():
            late = curve.scores[:, :, -5:].mean(axis=2, keepdims=True)
            estimate = interquartile_mean(late)
            digits = 2 if curve.of_success else 0
            centre, low, high = (f"{x[0]:.{digits}f}" for x in estimate)
            each = ", ".join(f"{x:.{digits}f}" for x in late[:, 0, 0])
            what = "success" if curve.of_success else "return"
            lines.append(
                f"| {task} | {algorithm} | {len(curve.seeds)} | {what} {centre} ({low} to {high}) | {each} "
                f"| {curve.seconds[-1]:.0f} |"
            )
    return "\n".join(lines) + "\n"


def origin(folders: list[Path]) -> str:
    """Where the numbers come from, in a line: commits, machines, threads, dates."""
    facts = [RunFolder(folder).read_facts() for folder in folders]

    def all_of(values: list[Any]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    machines = [
        f"{one.get('machine', {}).get('processor')} ({one.get('machine', {}).get('cores')} cores)" for one in facts
    ]
    return (
        f"{len(facts)} runs; commit {all_of([one.get('commit') for one in facts])}; {all_of(machines)}; threads a run: "
        f"{all_of([one['spec'].get('threads') for one in facts])}; "
        f"started {all_of(sorted(str(one.get('started'))[:10] for one in facts))}"
    )


def draw(grouped: dict[str, dict[str, Curve]], path: Path, source: str = "") -> None:
    """Tasks in columns; over steps above, over seconds of training below; in small print, where it comes from."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        message = 'Figures need matplotlib, which is not installed: pip install "tsac[studies]"'
        raise ModuleNotFoundError(message) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    algorithms = sorted({name for curves_ in grouped.values() for name in curves_})
    figure, axes = plt.subplots(2, len(grouped), figsize=(4.6 * len(grouped), 6.4), squeeze=False)
    for column, (task, of_task) in enumerate(grouped.items()):
        for algorithm, curve in of_task.items():
            estimate = interquartile_mean(curve.scores)
            colour = f"C{algorithms.index(algorithm)}"
            label = f"{algorithm} ({len(curve.seeds)} seeds)"
            for row, x in enumerate((curve.steps, curve.seconds)):
                _draw_curve(axes[row][column], x, estimate, curve, colour, label)
        what = "success at the last step" if next(iter(of_task.values())).of_success else "return"
        axes[0][column].set(title=task, xlabel="environment steps", ylabel=f"{what}, IQM")
        axes[1][column].set(xlabel="seconds of training, evaluations left out", ylabel=f"{what}, IQM")
        axes[0][column].legend(loc="upper left", fontsize="small")
    figure.text(0.01, 0.005, source, fontsize=6, color="grey")
    figure.tight_layout(rect=(0.0, 0.02, 1.0, 1.0))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_curve(axis: Any, x: NDArray[Any], estimate: Estimate, curve: Curve, colour: str, label: str) -> None:
    axis.plot(x, estimate.centre, color=colour, label=label)
    axis.fill_between(x, estimate.low, estimate.high, color=colour, alpha=0.2, linewidth=0)
    for seed in curve.scores[:, 0]:
        axis.plot(x, seed, color=colour, alpha=0.25, linewidth=0.7)
    axis.grid(alpha=0.3)


def compare(folders: list[Path], output: Path) -> str:
    """Collect runs into a folder, with a figure and a table. Returns the table."""
    collected = collect(folders, output)
    grouped = read_curves(collected)
    if not grouped:
        raise FolderError("None of these runs has an evaluation yet.")
    source = origin(collected)
    draw(grouped, output / "curves.png", source)
    text = table(grouped)
    made = f"Made by `tsac compare {output}/*/ --output {output}` from the records beside this file: {source}.\n"
    (output / "table.md").write_text(f"{made}\n{text}")
    return text
