"""Replay buffers, evaluation, checkpoints, memory, and whole training beside other libraries."""

from __future__ import annotations

import importlib.util
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from measure import Work, seconds
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.evaluation import evaluate_policy

from tsac import TSAC, SegmentReplayBuffer
from tsac.tasks import make_task, make_vec

TASK = "HalfCheetah-v4"
OBSERVATIONS, ACTIONS = spaces.Box(-np.inf, np.inf, (17,)), spaces.Box(-1.0, 1.0, (6,))


# ------------------------------------------------------------------------------------------ buffers


def filled(kind: Any, count: int, **options: Any) -> Any:
    buffer = kind(count, OBSERVATIONS, ACTIONS, device="cpu", **options)
    if isinstance(buffer, SegmentReplayBuffer):
        segments, length = count // buffer.segment_length, buffer.segment_length
        none = torch.zeros(segments, length, dtype=torch.bool)
        content = {
            "observations": torch.randn(segments, length + 1, 17), "actions": torch.randn(segments, length, 6),
            "rewards": torch.randn(segments, length), "terminated": none, "ends": none,
            "first_step": torch.zeros(segments, dtype=torch.int32),
            "final_at": torch.zeros(0, 2, dtype=torch.int64), "finals": torch.zeros(0, 17),
        }  # fmt: skip
        buffer.put(0, content)
    else:
        buffer.observations[:] = buffer.next_observations[:] = np.random.standard_normal((count, 1, 17))
    buffer.pos, buffer.full = 0, True
    return buffer


def buffer_rows(budget: float, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    ours = {size: filled(SegmentReplayBuffer, size, segment_length=20) for size in sizes}
    theirs = {size: filled(ReplayBuffer, size) for size in sizes}
    step = (np.zeros((1, 17)), np.zeros((1, 17)), np.zeros((1, 6)), np.zeros(1), np.zeros(1, dtype=bool), [{}])

    def insert(buffer: Any) -> Work:
        def twenty() -> None:
            for _ in range(20):
                buffer.add(*step)

        return twenty

    def sample(buffer: Any, count: int) -> Work:
        return lambda: buffer.sample(count)

    works: dict[str, Work] = {}
    for size in sizes:
        works |= {f"insert ours {size}": insert(ours[size]), f"insert SB3 {size}": insert(theirs[size])}
        works |= {f"sample ours {size}": sample(ours[size], 256), f"sample SB3 {size}": sample(theirs[size], 256 * 20)}
    taken = seconds(works, budget)
    found = []
    for size in sizes:
        for part, what in (("sample", "256 segments of 20 steps"), ("insert", "20 steps")):
            row = {"what": f"replay buffer of {size:,}: {part} {what}", "unit": "ms"}
            row["SB3 / ours"] = taken[f"{part} SB3 {size}"] / taken[f"{part} ours {size}"]
            row |= {"ours": 1e3 * taken[f"{part} ours {size}"], "SB3": 1e3 * taken[f"{part} SB3 {size}"]}
            found.append(row)
    if len(sizes) > 1:
        ratio = taken[f"sample ours {sizes[-1]}"] / taken[f"sample ours {sizes[0]}"]
        found.append({"what": f"sample at {sizes[-1]:,} / at {sizes[0]:,}", "unit": "ratio", "ours": ratio})
    return found


# ------------------------------------------------------------------------------------------ training


def peers() -> dict[str, Any]:
    """Agents after their first steps, ready to learn: one update of the others' a step, as their libraries have it."""
    made: dict[str, Any] = {
        "ours": TSAC("MlpPolicy", make_vec(TASK, 1, 0), device="cpu", seed=0, learning_starts=0, actor_starts=0),
        "SB3 SAC": SAC("MlpPolicy", make_vec(TASK, 1, 0), device="cpu", seed=0),
        "SB3 TD3": TD3("MlpPolicy", make_vec(TASK, 1, 0), device="cpu", seed=0),
    }
    if importlib.util.find_spec("sb3_contrib"):
        from sb3_contrib import CrossQ

        made["CrossQ"] = CrossQ("MlpPolicy", make_vec(TASK, 1, 0), device="cpu", seed=0)
    if importlib.util.find_spec("sbx"):
        import sbx

        made["SBX SAC"] = sbx.SAC("MlpPolicy", make_vec(TASK, 1, 0), seed=0)
    for model in made.values():
        model.learn(120)  # all have begun to learn after 100 steps
    return made


def training_row(budget: float) -> dict[str, Any]:
    """Environment steps a second, learning included."""
    steps = 20
    models = peers()

    def learn(model: Any) -> Work:
        return lambda: model.learn(steps, reset_num_timesteps=False)

    taken = seconds({name: learn(model) for name, model in models.items()}, budget)
    rates = {name: steps / value for name, value in taken.items()}
    return {
        "what": f"training on {TASK}, laptop settings", "unit": "steps/s",
        "ours / SB3 SAC": rates["ours"] / rates["SB3 SAC"], **rates,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ evaluation


def evaluation_row(episodes: int, their_episodes: int, processes: int) -> dict[str, Any]:
    """Ours as ``tsac eval`` does it, start of the processes included; SB3's on one environment, for fewer episodes."""
    from tsac.runs.evaluation import evaluate_file
    from tsac.runs.folder import RunFolder
    from tsac.runs.progress import Progress
    from tsac.runs.spec import preset_values, spec_from
    from tsac.runs.training import Training

    values = preset_values("laptop", TASK)
    values |= {"steps": 100, "final_episodes": 0, "device": "cpu", "threads": torch.get_num_threads()}
    spec = spec_from(values)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        run.create(spec)
        training = Training(run, spec, Progress("", 1))
        training._checkpoint()
        start = time.perf_counter()
        evaluate_policy(training.model, make_task(TASK), their_episodes, warn=False)
        theirs = (time.perf_counter() - start) / their_episodes
        training.close()
        start = time.perf_counter()
        evaluate_file(run.policy, TASK, {}, episodes, processes)
        ours = (time.perf_counter() - start) / episodes
    return {
        "what": f"evaluation, {episodes} episodes of {TASK}, {processes} processes", "unit": "episodes/s",
        "ours / SB3": theirs / ours, "ours": 1.0 / ours, "SB3": 1.0 / theirs,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ checkpoints and memory


def checkpoint_row(budget: float) -> dict[str, Any]:
    """Of a run with 10,000 and with 200,000 stored steps, 1,000 of them new."""
    from tsac.runs.folder import RunFolder
    from tsac.runs.progress import Progress
    from tsac.runs.spec import preset_values, spec_from
    from tsac.runs.training import Training

    values = preset_values("laptop", TASK)
    values |= {"final_episodes": 0, "device": "cpu", "threads": torch.get_num_threads()}
    spec = spec_from(values)
    with tempfile.TemporaryDirectory() as folder:
        trainings = {}
        for stored in (10_000, 200_000):
            run = RunFolder(Path(folder) / str(stored))
            run.create(spec)
            trainings[stored] = Training(run, spec, Progress("", 1))
            model: Any = trainings[stored].model
            _pretend(model, stored)
            trainings[stored]._checkpoint()

        def checkpoint(training: Any) -> Work:
            def work() -> None:
                _pretend(training.model, 1_000)
                training._checkpoint()

            return work

        taken = seconds({str(stored): checkpoint(training) for stored, training in trainings.items()}, budget)
        for training in trainings.values():
            training.close()
    return {
        "what": "checkpoint, 200,000 / 10,000 steps stored", "unit": "ms",
        "ratio": taken["200000"] / taken["10000"], "ours": 1e3 * taken["200000"],
    }  # fmt: skip


def _pretend(model: TSAC, count: int) -> None:
    buffer = model.replay_buffer
    buffer.pos += count // buffer.segment_length
    buffer.written += count // buffer.segment_length
    model.num_timesteps += count


def memory_row() -> dict[str, Any]:
    """Peak of a process of its own that updates with the paper's MuJoCo settings, the buffer left out."""
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(torch.get_num_threads())],
        capture_output=True, text=True, check=True, cwd=os.path.dirname(__file__),
    )  # fmt: skip
    return {"what": "peak memory, paper, MuJoCo", "unit": "GB", "ours": float(answer.stdout.split()[-1])}


def _peak_memory(threads: int) -> None:
    from updates import make, random_segments

    torch.set_num_threads(threads)
    model = make("paper, MuJoCo", "highest")
    segments = random_segments(model)
    values = model.next_state_values(segments)
    for _ in range(2):
        model.update_critic(model.make_window(segments, values, 0, 16))
        model.update_actor(segments.observations[:, 0], segments.steps[:, 0])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


if __name__ == "__main__":
    _peak_memory(int(sys.argv[1]))
