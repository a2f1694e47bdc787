"""What the verbs of the command line do with a finished or running run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tsac.runs import checkpoints, curves, records
from tsac.runs.agents import load_agent, predictor
from tsac.runs.evaluation import evaluate_file, summary
from tsac.runs.folder import FolderError, RunFolder
from tsac.runs.parameters import parameter_lines
from tsac.runs.settings import SpecError, from_mapping
from tsac.runs.spec import Disturbances


def _policy_of(source: Path, best: bool) -> Path:
    if source.is_file():
        return source
    folder = RunFolder(source)
    folder.read_facts()
    path = folder.best_policy if best else folder.policy
    if not path.exists():
        raise FolderError(f"{source} has no {path.name} yet: there is one after the first checkpoint.")
    return path


def evaluate(
    source: Path, episodes: int, best: bool, task: str | None, processes: int, csv: Path | None, video: Path | None
) -> None:
    from tsac.runs.video import check_ending, film

    if episodes < 1 or processes < 1:
        raise SpecError("--episodes and --processes must be at least 1.")
    policy = _policy_of(source, best)
    run = RunFolder(policy.resolve().parent)
    if csv is not None and csv.resolve() in (run.train, run.evaluations):
        raise SpecError(f"{csv} is one of the run's own files: choose another name.")
    if video is not None:
        check_ending(video)
    model, normalizer, content = load_agent(policy)
    options = asdict(from_mapping(Disturbances, content.get("disturbances", {}), "disturbances"))
    task = task or str(content.get("task", ""))
    if not task:
        raise SpecError(f"{policy} does not say which task it is for: name one with --task.")
    played = evaluate_file(policy, task, options, episodes, processes)
    result = summary(played)
    totals = sorted(episode.total for episode in played)
    print(f"{task}: {result} over {episodes} episodes (returns from {totals[0]:.1f} to {totals[-1]:.1f})")
    if csv is not None:
        csv.parent.mkdir(parents=True, exist_ok=True)
        csv.unlink(missing_ok=True)
        records.start_evaluations(csv, 0)
        records.append_evaluation(csv, int(content.get("step", 0)), 0.0, played)
        print(f"One row per episode: {csv}")
    if video is not None:
        frames = film(predictor(model, normalizer), task, options, video)
        print(f"{frames} frames: {video}")


def show(path: Path, curve: Path | None) -> None:
    folder = RunFolder(path)
    facts = folder.read_facts()
    spec = folder.read_spec()
    console = Console(highlight=False, markup=False)  # nothing in a file is to change how it is shown
    step = checkpoints.latest_step(folder.checkpoints) or 0
    console.print(f"{spec.algorithm} on {spec.task}, seed {spec.seed}  ({path})", style="bold")
    console.print(f"{step:,} of {spec.steps:,} steps in the last checkpoint")
    preset = f"{spec.preset}, {spec.reading}, {spec.scale}" if spec.preset else "none"
    known, machine = facts.get("versions"), facts.get("machine")
    versions = ", ".join(f"{name} {version}" for name, version in known.items()) if isinstance(known, dict) else "?"
    machine = machine if isinstance(machine, dict) else {}
    console.print(f"preset {preset}; commit {facts.get('commit')}; started {facts.get('started')}")
    console.print(f"{machine.get('processor')}, {machine.get('cores')} cores; {versions}")
    if folder.policy.exists():
        for line in parameter_lines(folder.policy, spec.algorithm):
            console.print(line)
    means = curves.read_means(folder.evaluations)
    if means:
        table = Table("step", "episodes", "return", "success", "seconds")
        for mean in means[-8:]:
            success = "" if mean.success is None else f"{mean.success:.0%}"
            table.add_row(f"{mean.step:,}", str(mean.episodes), f"{mean.total:.1f}", success, f"{mean.seconds:.0f}")
        console.print(table)
        console.print(curves.as_text(means))
    if curve is not None:
        curves.draw(curve, f"{spec.algorithm} on {spec.task}, seed {spec.seed}", means)
        console.print(f"The curve: {curve}")


def export(source: Path, output: Path, best: bool) -> None:
    from tsac.runs.export import export_onnx

    print(export_onnx(_policy_of(source, best), output))
