"""What a replay buffer has taken up since the last checkpoint, and how to put it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer

from tsac.agent import SegmentReplayBuffer

ROWS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def _buffer(model: BaseAlgorithm) -> ReplayBuffer | None:
    return getattr(model, "replay_buffer", None)


def written(model: BaseAlgorithm) -> int:
    """Places of the buffer written so far, those that were written again counted again."""
    buffer = _buffer(model)
    if buffer is None:
        return 0
    return buffer.written if isinstance(buffer, SegmentReplayBuffer) else model.num_timesteps // model.n_envs


def capacity(model: BaseAlgorithm) -> int:
    buffer = _buffer(model)
    if buffer is None:
        return 1
    return buffer.capacity if isinstance(buffer, SegmentReplayBuffer) else buffer.buffer_size


def parts_since(model: BaseAlgorithm, before: int) -> list[dict[str, Any]]:
    """The places written since ``written`` was ``before``, in one piece or, around the buffer's end, in two."""
    buffer = _buffer(model)
    size = capacity(model)
    count = min(written(model) - before, size)
    if buffer is None or count == 0:
        return []
    first = (buffer.pos - count) % size
    pieces = [(first, min(count, size - first))]
    if first + count > size:
        pieces.append((0, first + count - size))
    return [{"first": start, "count": length, "rows": _part(buffer, start, length)} for start, length in pieces]


def _part(buffer: ReplayBuffer, first: int, count: int) -> dict[str, Any]:
    if isinstance(buffer, SegmentReplayBuffer):
        return buffer.part(first, count)
    rows = slice(first, first + count)
    return {name: _sliced(getattr(buffer, name), rows) for name in ROWS}


def _sliced(array: Any, rows: slice) -> Any:
    return {key: value[rows] for key, value in array.items()} if isinstance(array, dict) else array[rows]


def put(model: BaseAlgorithm, part: dict[str, Any]) -> None:
    buffer = _buffer(model)
    first, count, rows = part["first"], part["count"], part["rows"]
    if isinstance(buffer, SegmentReplayBuffer):
        buffer.put(first, rows)
        return
    for name in ROWS:
        stored = getattr(buffer, name)
        for key in stored if isinstance(stored, dict) else (None,):
            target, source = (stored, rows[name]) if key is None else (stored[key], rows[name][key])
            target[first : first + count] = source


def position(model: BaseAlgorithm) -> dict[str, Any] | None:
    buffer = _buffer(model)
    if buffer is None:
        return None
    state: dict[str, Any] = {"pos": buffer.pos, "full": buffer.full}
    if isinstance(buffer, SegmentReplayBuffer):
        state |= {"written": buffer.written, "unfinished": buffer.unfinished_state()}
    return state


def set_position(model: BaseAlgorithm, state: dict[str, Any] | None) -> None:
    buffer = _buffer(model)
    if buffer is None or state is None:
        return
    buffer.pos, buffer.full = state["pos"], state["full"]
    if isinstance(buffer, SegmentReplayBuffer):
        buffer.written = state["written"]
        buffer.set_unfinished_state(state["unfinished"])


def close_episodes(model: BaseAlgorithm) -> None:
    """The environments are about to be made anew: no n-step return may reach from their last step to the next one."""
    buffer = _buffer(model)
    if buffer is None or isinstance(buffer, SegmentReplayBuffer) or buffer.size() == 0:
        return  # segments notice by themselves
    last = buffer.pos - 1
    running = buffer.dones[last] == 0
    buffer.dones[last, running] = 1
    buffer.timeouts[last, running] = 1


def equal(one: BaseAlgorithm, other: BaseAlgorithm) -> bool:
    """Whether two agents remember the same."""
    return _same([*parts_since(one, 0), position(one)], [*parts_since(other, 0), position(other)])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return set(one) == set(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other))
