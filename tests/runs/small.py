"""Runs that take seconds, in processes that can be killed, and what two of them are compared by."""

import multiprocessing
import os
import signal
import sys

import numpy as np
import torch

from tsac.agent import files
from tsac.runs import records, replay
from tsac.runs.folder import RunFolder
from tsac.runs.progress import Progress
from tsac.runs.spec import spec_from
from tsac.runs.training import Interrupted, Training, train

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tsac.runs.training", "sb3_contrib"])

AGENTS = {
    "tsac": {
        "batch_size": 8,
        "segment_length": 10,
        "max_length": 6,
        "critic_updates": 2,
        "actor_updates": 2,
        "learning_starts": 60,
        "actor_starts": 100,
        "buffer_size": 500,  # wraps around
        "policy_kwargs": {"net_arch": [8], "critic_width": 8, "critic_heads": 2},
    },
    "sac": {
        "batch_size": 16,
        "learning_starts": 60,
        "buffer_size": 500,
        "train_freq": 10,
        "gradient_steps": 3,
        "policy_kwargs": {"net_arch": [16]},
    },
    "td3": {
        "batch_size": 16,
        "learning_starts": 60,
        "buffer_size": 500,
        "train_freq": 10,
        "gradient_steps": 2,
        "action_noise": 0.1,
        "policy_kwargs": {"net_arch": [16]},
    },
    "crossq": {
        "batch_size": 16,
        "learning_starts": 60,
        "buffer_size": 500,
        "train_freq": 10,
        "gradient_steps": 2,
        "policy_kwargs": {"net_arch": [16]},
    },
    "ppo": {"n_steps": 50, "batch_size": 25, "n_epochs": 2},
    "gsde": {"n_steps": 50, "batch_size": 25, "n_epochs": 2, "sde_sample_freq": 4},
}


def small_spec(algorithm="tsac", **changes):
    agent = {**AGENTS[algorithm], **changes.pop("agent", {})}
    small = {
        "task": "Pendulum-v1",
        "algorithm": algorithm,
        "seed": 5,
        "steps": 1200,
        "evaluate_every": 300,
        "evaluation_episodes": 1,
        "final_episodes": 2,
        "checkpoint_every": 150,
        "log_every": 100,
        "device": "cpu",
    }
    return spec_from({**small, **changes, "agent": agent})


def create(path, spec):
    folder = RunFolder(path)
    folder.create(spec)
    return folder


def go(path, die_at=None):
    """Train from where the run is; in a process of its own. Exit codes as at the command line.

    :param die_at: kill the process when it has that many times made sure that bytes are on the disk
    """
    sys.stderr = open(os.path.join(path, "..", "stderr.txt"), "a")  # noqa: SIM115 - until the process ends
    if die_at is not None:
        real, count = os.fsync, 0

        def fsync(descriptor):
            nonlocal count
            count += 1
            if count == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            real(descriptor)

        os.fsync = fsync
    folder = RunFolder(path)
    spec = folder.read_spec()
    try:
        train(folder, spec, Progress("", spec.steps))
    except Interrupted:
        sys.exit(75)


def start(path, die_at=None):
    process = processes.Process(target=go, args=(str(path), die_at))
    process.start()
    return process


def finish(path):
    process = start(path)
    process.join()
    assert process.exitcode == 0


def without_time(rows):
    return [{k: v for k, v in row.items() if not k.startswith("time/") and k != "seconds"} for row in rows]


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor | np.ndarray):
        return bool((torch.as_tensor(one) == torch.as_tensor(other)).all())
    return repr(one) == repr(other)


def assert_same_run(one, other):
    """Bit for bit: policies, curves, what is in the replay buffer, and how the run would go on."""
    one, other = RunFolder(one), RunFolder(other)
    assert same(files.read(one.policy), files.read(other.policy))
    assert same(files.read(one.best_policy), files.read(other.best_policy))
    for name in ("evaluations", "train"):
        rows = records.read_rows(getattr(one, name))
        assert rows
        assert without_time(rows) == without_time(records.read_rows(getattr(other, name)))
    loaded = [Training(folder, folder.read_spec(), Progress("", 1)) for folder in (one, other)]
    try:
        assert replay.equal(loaded[0].model, loaded[1].model)
        states = [files.read(folder.checkpoints / f"state-{t.model.num_timesteps:012d}.safetensors")
                  for folder, t in zip((one, other), loaded, strict=True)]  # fmt: skip
        for state in states:
            del state["seconds"]
            state["logged"]["values"] = {
                key: value for key, value in state["logged"]["values"].items() if not key.startswith("time/")
            }
        assert same(*states)
    finally:
        for training in loaded:
            training.close()
