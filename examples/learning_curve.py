"""Train one agent on one task and write its learning curve.

    python examples/learning_curve.py --task Hopper-v4 --seed 0 --steps 100000 --folder runs/hopper-0

writes ``run.json`` (what was run, on what) and ``evaluations.csv``: one row per episode of the deterministic policy,
on an environment of its own whose episodes start from fixed seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import tsac

ALGORITHMS = {"tsac": tsac.TSAC, "sac": SAC}


class LearningCurve(BaseCallback):
    """Evaluate every ``every`` steps and append to a CSV file at once, so that a stopped run keeps its rows."""

    def __init__(self, task: str, folder: Path, every: int, episodes: int) -> None:
        super().__init__()
        self.env = gym.make(task)
        self.file, self.every, self.episodes = folder / "evaluations.csv", every, episodes
        self.next_evaluation = every
        self.training_seconds = 0.0

    def _on_training_start(self) -> None:
        with self.file.open("w", newline="") as file:
            csv.writer(file).writerow(["step", "seconds", "episode", "return", "length"])
        self.resumed = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next_evaluation:
            self.next_evaluation += self.every
            self.training_seconds += time.perf_counter() - self.resumed
            returns = [self.episode(seed) for seed in range(self.episodes)]
            with self.file.open("a", newline="") as file:
                for number, (total, length) in enumerate(returns):
                    row = [self.num_timesteps, f"{self.training_seconds:.1f}", number, f"{total:.3f}", length]
                    csv.writer(file).writerow(row)
            mean = sum(total for total, _ in returns) / self.episodes
            print(f"{self.num_timesteps:>8} steps  {self.training_seconds:7.0f} s  return {mean:9.1f}", flush=True)
            self.resumed = time.perf_counter()
        return True

    def episode(self, seed: int) -> tuple[float, int]:
        observation, _ = self.env.reset(seed=10_000 + seed)
        total, length, done, state = 0.0, 0, False, None
        while not done:
            action, state = self.model.predict(observation, state, deterministic=True)
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total, length, done = total + float(reward), length + 1, terminated or truncated
        return total, length


def git_commit() -> str:
    answer = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Hopper-v4")
    parser.add_argument("--algorithm", choices=sorted(ALGORITHMS), default="tsac")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--environments", type=int, default=1)
    parser.add_argument("--every", type=int, default=5_000, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="episodes per evaluation")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--set", default="{}", help="constructor arguments as JSON")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists already; choose another folder")

    torch.set_num_threads(options.threads)
    arguments: dict[str, Any] = json.loads(options.set)
    options.folder.mkdir(parents=True)
    env = make_vec_env(options.task, n_envs=options.environments, seed=options.seed)
    model = ALGORITHMS[options.algorithm]("MlpPolicy", env, seed=options.seed, device="cpu", **arguments)
    facts = {
        "command": " ".join(["python", *sys.argv]),
        "commit": git_commit(),
        "task": options.task,
        "algorithm": options.algorithm,
        "seed": options.seed,
        "steps": options.steps,
        "environments": options.environments,
        "arguments": arguments,
        "threads": options.threads,
        "machine": platform.platform(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "gymnasium": gym.__version__},
    }
    (options.folder / "run.json").write_text(json.dumps(facts, indent=2) + "\n")
    model.learn(options.steps, callback=LearningCurve(options.task, options.folder, options.every, options.episodes))


if __name__ == "__main__":
    main()
