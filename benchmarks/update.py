"""Time the parts of a round: python benchmarks/update.py [threads].

Milliseconds, medians over repetitions, at the compact defaults and at the paper's MuJoCo settings.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from statistics import median

import gymnasium as gym
import torch

from tsac import TSAC


def milliseconds(work: Callable[[], object], repetitions: int = 9) -> float:
    work()
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1e3 * median(seconds)


def time_parts(title: str, model: TSAC) -> None:
    model.learning_starts = 10**9
    model.learn(40 * model.segment_length)
    segments = model.replay_buffer.sample(model.batch_size)
    values = model.next_state_values(segments)
    print(f"\n{title}: batch {model.batch_size}, width {model.critic.embed_state.weight.shape[1]}")
    print(f"  sample a batch          {milliseconds(lambda: model.replay_buffer.sample(model.batch_size)):8.2f} ms")
    print(f"  next-state values       {milliseconds(lambda: model.next_state_values(segments)):8.2f} ms")
    for length in (1, 4, 8, 16):
        window = model.make_window(segments, values, 0, length)
        taken = milliseconds(lambda window=window: model.update_critic(window))  # type: ignore[misc]
        print(f"  critic update, {length:>2} steps  {taken:8.2f} ms")
    states, steps = segments.observations[:, 0], segments.steps[:, 0]
    print(f"  actor update            {milliseconds(lambda: model.update_actor(states, steps)):8.2f} ms")


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}, gymnasium {gym.__version__}, {platform.processor()}, {threads} thread(s)")
    time_parts("compact defaults", TSAC("MlpPolicy", "Hopper-v4", device="cpu"))
    time_parts("paper, MuJoCo", TSAC.from_preset("mujoco", "Hopper-v4", device="cpu"))


if __name__ == "__main__":
    main()
