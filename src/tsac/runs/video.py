"""Films of what a policy does, without a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tsac.runs.evaluation import FIRST_SEED, Predict, stacked
from tsac.runs.settings import SpecError
from tsac.tasks import make_task

SECONDS_AT_MOST = 30


def check_ending(path: Path) -> None:
    if path.suffix != ".mp4":
        raise SpecError(f"A video is written as .mp4; got {path}.")


def film(predict: Predict, task: str, options: dict[str, Any], path: Path) -> int:
    """Write the evaluation's first episode, or its beginning, as mp4. Returns the number of frames."""
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401
    except ModuleNotFoundError as error:
        message = f'A video needs {error.name}, which is not installed: pip install "tsac[video]"'
        raise ModuleNotFoundError(message) from error
    check_ending(path)
    env = make_task(task, render_mode="rgb_array", **options)
    rate = int(env.metadata.get("render_fps", 30))
    every = max(1, round(rate / 50))  # players show 50 pictures a second at most
    path.parent.mkdir(parents=True, exist_ok=True)
    observation, _ = env.reset(seed=FIRST_SEED)
    starts, state, steps, frames, over = np.ones(1, dtype=bool), None, 0, 0, False
    writer: Any
    with imageio.get_writer(path, fps=rate / every, macro_block_size=2) as writer:
        while not over and frames < SECONDS_AT_MOST * rate / every:
            if steps % every == 0:
                writer.append_data(np.asarray(env.render()))
                frames += 1
            actions, state = predict(stacked([observation]), state, starts)
            starts = np.zeros(1, dtype=bool)
            observation, _, terminated, truncated, _ = env.step(actions[0])
            over, steps = terminated or truncated, steps + 1
    env.close()
    return frames
