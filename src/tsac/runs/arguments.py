"""What the words after ``tsac train`` ask for: a preset, and settings that replace its own."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import io
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from tsac import presets
from tsac.near import nearest
from tsac.runs.settings import SpecError
from tsac.runs.spec import RunSpec, check_with_task, preset_values, spec_from

POLICY = re.compile(r"--agent\.policy[-_]kwargs\.([A-Za-z_-]+)(?:=(.*))?")
USAGE = "tsac train PRESET --task TASK [--algorithm NAME] [--folder FOLDER] [--SETTING VALUE ...]"


class Asked(NamedTuple):
    spec: RunSpec
    folder: Path
    verbose: bool
    wandb: bool
    minutes: float | None


def parse_train(words: list[str]) -> Asked:
    parser = argparse.ArgumentParser(
        prog="tsac train",
        usage=USAGE,
        description="Train one algorithm on one task.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "preset", nargs="?", help=f"{', '.join(presets.preset_names())}; laptop, for two CPU cores; or a YAML file"
    )
    parser.add_argument("--task", help="`tsac tasks` lists them")
    parser.add_argument("--algorithm", help="`tsac algorithms` lists them; tsac where none is named")
    parser.add_argument("--reading", help="published (default) or paper: where the printed table says otherwise")
    parser.add_argument("--scale", help="full (default) or laptop")
    parser.add_argument("--folder", type=Path, help="where everything of the run is kept; runs/TASK-ALGORITHM-SEED")
    parser.add_argument("--verbose", action="store_true", help="SB3's tables instead of a progress line")
    parser.add_argument("--wandb", action="store_true", help="log to Weights & Biases, too")
    parser.add_argument("--minutes", type=positive, help="stop after that time; `tsac resume` goes on")
    parser.add_argument("-h", "--help", action="store_true", help="this; with a preset and a task, its settings, too")
    asked, rest = parser.parse_known_args(words)
    if asked.help:
        parser.print_help()
        if asked.preset and asked.task:
            print()
            _with_settings(preset_values(*_selected(asked)), ["--help"])
        sys.exit(0)
    if not asked.preset:
        raise SpecError(f"Choose a preset: {', '.join(presets.preset_names())}, laptop, or a YAML file. {USAGE}")
    values = preset_values(*_selected(asked))
    rest, policy = _policy_settings(rest)
    spec = spec_from(presets.merge(values, {"agent": {"policy_kwargs": policy}} if policy else {}))
    spec = _with_settings(dataclasses.asdict(spec), rest) if rest else spec
    if asked.wandb and not importlib.util.find_spec("wandb"):
        raise SpecError('--wandb needs a package that is not installed: pip install "tsac[wandb]"')
    check_with_task(spec)
    folder = asked.folder or Path("runs") / f"{spec.task.replace('/', '-')}-{spec.algorithm}-{spec.seed}"
    return Asked(spec, folder, asked.verbose, asked.wandb, asked.minutes)


def positive(text: str) -> float:
    """A time on the command line."""
    number = float(text)
    if not 0.0 < number < float("inf"):
        raise ValueError
    return number


def _selected(asked: argparse.Namespace) -> tuple[str, str | None, str | None, str | None, str | None]:
    return asked.preset, asked.task, asked.algorithm, asked.reading, asked.scale


def _policy_settings(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """``--agent.policy-kwargs.KEY VALUE``, the value as YAML, taken out of the words."""
    rest: list[str] = []
    policy: dict[str, Any] = {}
    waiting = iter(words)
    for word in waiting:
        match = POLICY.fullmatch(word)
        if not match:
            rest.append(word)
            continue
        text = match[2] if match[2] is not None else next(waiting, None)
        if text is None:
            raise SpecError(f"{word} needs a value.")
        try:
            policy[match[1].replace("-", "_")] = presets.parse_yaml(text)
        except Exception as error:  # of many kinds, all of them about the text
            raise SpecError(f"{word}: {text!r} cannot be understood.") from error
    return rest, policy


def _with_settings(values: dict[str, Any], words: list[str]) -> RunSpec:
    """The specification with the settings on the command line put in: tyro knows their types from the fields."""
    spec = spec_from(values)
    known = [name for name in _option_names(spec) if name != "--preset"]  # chosen before anything else
    for word in words:
        name = word.split("=")[0].replace("_", "-")
        if word.startswith("--") and name not in known and name != "--help":
            raise SpecError(f"There is no setting {word.split('=')[0]}.{nearest(name, known)}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            asked = tyro.cli(type(spec), default=spec, args=words, prog="tsac train")
            return spec_from(dataclasses.asdict(asked))
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("│╭╮╰╯─ ") for line in said.getvalue().splitlines()]
        text = " ".join(line for line in lines[1:] if line and "For full helptext" not in line)
        raise SpecError(text or "The settings on the command line cannot be understood.") from None


def _option_names(settings: Any, prefix: str = "--") -> list[str]:
    names: list[str] = []
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            names += _option_names(value, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
            if isinstance(value, bool):
                names.append(f"{prefix}no-{name}")
    return names
