"""The folder of a run: where things are, what is known about its origin, and who may work in it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from tsac.agent import files
from tsac.runs.settings import SpecError
from tsac.runs.spec import RunSpec, spec_from, spec_values

PACKAGES = ("tsac", "torch", "stable-baselines3", "sb3-contrib", "gymnasium", "numpy", "mujoco", "metaworld")


class FolderError(RuntimeError):
    """A folder that cannot be used, in a sentence."""


class RunFolder:
    """Where everything that a run needs is kept."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.facts = self.path / "run.json"
        self.train = self.path / "train.csv"
        self.evaluations = self.path / "evaluations.csv"
        self.checkpoints = self.path / "checkpoint"
        self.tensorboard = self.path / "tensorboard"
        self.policy = self.path / "policy.safetensors"
        self.best_policy = self.path / "policy-best.safetensors"

    def create(self, spec: RunSpec) -> None:
        """Make the folder, with the run's specification and origin. One that exists is never touched."""
        facts = (json.dumps(origin(spec), indent=2) + "\n").encode()
        if self.path.exists() and (
            not self.path.is_dir() or any(not _unfinished(path) for path in self.path.iterdir())
        ):
            raise FolderError(
                f"{self.path} exists already and is not overwritten: choose another --folder"
                + (f", or go on with `tsac resume {self.path}`." if self.facts.exists() else ".")
            )
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_bytes(self.facts, facts)

    def read_facts(self) -> dict[str, Any]:
        """What ``run.json`` says, checked as far as a folder is needed to be one of a run."""
        try:
            facts = json.loads(self.facts.read_text("utf-8"))
        except FileNotFoundError as error:
            raise FolderError(
                f"{self.path} is not the folder of a run: there is no {self.facts.name} in it."
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise FolderError(f"{self.facts} cannot be read: {files.reason(error)}") from error
        if not isinstance(facts, dict) or not isinstance(facts.get("spec"), dict):
            raise FolderError(f"{self.facts} holds no specification of a run.")
        return facts

    def read_spec(self) -> RunSpec:
        try:
            return spec_from(self.read_facts()["spec"])
        except SpecError as error:
            raise FolderError(f"{self.facts}: {error}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time trains in a folder. The lock goes when its process does, however it ends."""
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FolderError(
                    f"Another process is training in {self.path}; wait for it, or stop it first."
                ) from error
            yield


def _unfinished(path: Path) -> bool:
    """What is left of a folder's creation that was killed."""
    return path.name.startswith(".run.json.")


def origin(spec: RunSpec) -> dict[str, Any]:
    """Everything that somebody needs to repeat a run."""
    return {
        "spec": spec_values(spec),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """The commit of this library's own checkout; None where it was installed from a package."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def versions() -> dict[str, str]:
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            known[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return known


def machine() -> dict[str, Any]:
    return {"platform": platform.platform(), "processor": processor(), "cores": os.cpu_count()}


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
