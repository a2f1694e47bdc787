"""What a run is to do: everything that decides its numbers, as data."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tsac import presets
from tsac.agent import files
from tsac.baselines import find_algorithm
from tsac.near import nearest
from tsac.runs.settings import SpecError, from_mapping, settings_type
from tsac.tasks import SUITES

# Arguments of the algorithms whose range their libraries do not check.
COUNTS = (
    "batch_size", "buffer_size", "n_epochs", "n_steps", "policy_delay", "sequence_length", "stats_window_size",
    "target_update_interval", "train_freq",
)  # fmt: skip
SHARES = ("gae_lambda", "gamma", "tau")
LAPTOP = "laptop"  # stands for the preset of the task's suite, at laptop scale


@dataclass(frozen=True, kw_only=True)
class Disturbances:
    """Of the training environments and of those of the evaluation alike."""

    observation_noise: float = 0.0
    """deviation of the noise on observations"""
    action_noise: float = 0.0
    """deviation of the noise on actions, relative to half their range"""
    false_ends: float = 0.0
    """probability of a false end"""
    false_ends_per: Literal["episode", "step"] = "episode"
    hidden: float = 0.0
    """share of the observation, from its end, that is removed"""


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """Running statistics, as SB3's VecNormalize keeps them."""

    observations: bool = False
    rewards: bool = False


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One algorithm, one task, one seed."""

    task: str
    """name of the task, see `tsac tasks`"""
    algorithm: str = "tsac"
    seed: int = 0
    steps: int = 100_000
    """environment steps, of all environments together"""
    environments: int = 1
    """environments that experience is collected from"""
    processes: bool = False
    """each of them in a process of its own"""
    disturbances: Disturbances = field(default_factory=Disturbances)
    normalization: Normalization = field(default_factory=Normalization)
    evaluate_every: int = 5_000
    """steps between evaluations"""
    evaluation_episodes: int = 10
    final_episodes: int = 152
    """episodes of the evaluation at the end"""
    evaluation_processes: int = 1
    """processes that share the episodes at the end"""
    checkpoint_every: int = 5_000
    """steps between checkpoints; the environments are made anew at each"""
    log_every: int = 1_000
    """steps between rows of train.csv"""
    threads: int = 1
    """threads for PyTorch; 0: its own choice"""
    device: str = "auto"
    preset: str = ""
    """where the settings came from"""
    reading: presets.Reading = "published"
    scale: presets.Scale = "full"
    agent: Any = None


@functools.cache
def spec_type(algorithm: str) -> type[RunSpec]:
    """``RunSpec`` whose ``agent`` has the fields of one algorithm."""
    kind = settings_type(algorithm)
    agent = ("agent", kind, field(default_factory=kind))
    return dataclasses.make_dataclass("RunSpec", [agent], bases=(RunSpec,), frozen=True, kw_only=True)


def spec_from(values: Any) -> RunSpec:
    """A specification from what JSON or YAML gave, checked."""
    algorithm = values.get("algorithm", "tsac") if isinstance(values, dict) else "tsac"
    if not isinstance(algorithm, str):
        raise SpecError(f"algorithm must be a text; got {algorithm!r}.")
    spec: RunSpec = from_mapping(spec_type(find_algorithm(algorithm).name), values)
    check(spec)
    return spec


def spec_values(spec: RunSpec) -> dict[str, Any]:
    """As JSON takes it."""
    return dataclasses.asdict(spec)


def task_options(spec: RunSpec) -> dict[str, Any]:
    """Options of ``make_task``."""
    return dataclasses.asdict(spec.disturbances)


def check(spec: RunSpec) -> None:
    """Refuse what no run could do. What an algorithm cannot do, its constructor refuses."""
    positive = (
        "steps",
        "environments",
        "evaluate_every",
        "evaluation_episodes",
        "evaluation_processes",
        "checkpoint_every",
        "log_every",
    )
    for name in positive:
        if getattr(spec, name) < 1:
            raise SpecError(f"{name} must be at least 1; got {getattr(spec, name)}.")
    for name in ("seed", "final_episodes", "threads"):
        if getattr(spec, name) < 0:
            raise SpecError(f"{name} must not be negative; got {getattr(spec, name)}.")
    if spec.seed >= 2**32:
        raise SpecError(f"seed must be below 2**32; got {spec.seed}.")
    limits = {"environments": 4096, "threads": 1024, "evaluation_processes": 1024, "evaluation_episodes": 100_000}
    for name, limit in limits.items():
        if getattr(spec, name) > limit:
            raise SpecError(f"{name} must be at most {limit}; got {getattr(spec, name)}.")
    for name in ("observation_noise", "action_noise"):
        if getattr(spec.disturbances, name) < 0.0:
            raise SpecError(f"disturbances.{name} must not be negative; got {getattr(spec.disturbances, name)}.")
    if not 0.0 <= spec.disturbances.false_ends <= 1.0:
        raise SpecError(f"disturbances.false_ends is a probability; got {spec.disturbances.false_ends}.")
    if not 0.0 <= spec.disturbances.hidden < 1.0:
        raise SpecError(f"disturbances.hidden must be at least 0 and below 1; got {spec.disturbances.hidden}.")
    agent = spec.agent
    for name in COUNTS:
        if isinstance(getattr(agent, name, None), int) and getattr(agent, name) < 1:
            raise SpecError(f"agent.{name} must be at least 1; got {getattr(agent, name)}.")
    for name in SHARES:
        if isinstance(getattr(agent, name, None), float | int) and not 0.0 <= getattr(agent, name) <= 1.0:
            raise SpecError(f"agent.{name} must be between 0 and 1; got {getattr(agent, name)}.")
    batch, capacity = getattr(agent, "batch_size", None), getattr(agent, "buffer_size", None)
    steps_in_batch = (batch or 0) * getattr(agent, "segment_length", 1)
    if capacity is not None and steps_in_batch > capacity:
        raise SpecError(
            f"A batch ({steps_in_batch} steps) must fit in the replay buffer (agent.buffer_size={capacity})."
        )
    if capacity is not None and capacity < spec.environments * getattr(agent, "segment_length", 1):
        raise SpecError(f"agent.buffer_size={capacity} is too small for {spec.environments} environments.")


def check_with_task(spec: RunSpec) -> None:
    """Make the task and the agent once, so that what either refuses is said before anything is written."""
    from tsac.runs.agents import make_agent
    from tsac.runs.chapters import make_environments

    small = {"buffer_size": 1} if hasattr(spec.agent, "buffer_size") else {}
    try:
        _, env = make_environments(dataclasses.replace(spec, processes=False), 0)
    except (ValueError, TypeError) as error:
        raise SpecError(files.reason(error)) from error
    make_agent(dataclasses.replace(spec, agent=dataclasses.replace(spec.agent, **small)), env)
    env.close()


# ------------------------------------------------------------------------------------------ from a preset


def preset_of(task: str) -> str:
    """The preset of the suite that a task belongs to."""
    if task in SUITES["ml1"] or task.lower().startswith("metaworld/"):
        return "metaworld"
    if "boxpushing" in task.lower():
        return "box-pushing-sparse" if "sparse" in task.lower() else "box-pushing-dense"
    return "mujoco"


def preset_values(
    source: str,
    task: str | None = None,
    algorithm: str | None = None,
    reading: str | None = None,
    scale: str | None = None,
) -> dict[str, Any]:
    """What a preset says, as ``spec_from`` takes it.

    :param source: the name of a preset, ``laptop``, or a YAML file: a specification, with or without ``preset``, whose
        settings it starts from
    """
    own: dict[str, Any] = {}
    if source.endswith((".yaml", ".yml")):
        own = _read_yaml(Path(source))
    given = {"task": task, "algorithm": algorithm, "reading": reading, "scale": scale}
    own.update({name: value for name, value in given.items() if value is not None})
    name = own.get("preset", "") if source.endswith((".yaml", ".yml")) else source
    if name == LAPTOP:
        own["scale"] = "laptop"
        if not isinstance(own.get("task"), str):
            raise SpecError("Choose a task, such as --task Hopper-v4; `tsac tasks` lists them.")
        name = preset_of(own["task"])
    for word in ("preset", "algorithm", "reading", "scale"):
        if not isinstance(own.get(word, ""), str):
            raise SpecError(f"{word} must be a text; got {own[word]!r}.")
    if not name:
        return own
    if name not in presets.preset_names():
        raise SpecError(f"There is no preset {name!r}.{nearest(name, [*presets.preset_names(), LAPTOP])}")
    find_algorithm(own.get("algorithm", "tsac"))
    base = presets.read_preset(
        name, own.get("reading", "published"), own.get("algorithm", "tsac"), own.get("scale", "full")
    )
    suite = base.pop("suite")
    if "task" not in own:
        raise SpecError(f"Choose a task with --task; the suite {suite} has {', '.join(SUITES[suite][:5])}, ...")
    return presets.merge(base, {**own, "preset": name})


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = presets.parse_yaml(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"There is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise SpecError(f"{path} is no YAML: {files.reason(error)}") from error
    if not isinstance(values, dict):
        raise SpecError(f"{path} must hold a mapping of settings to values.")
    return values
