"""Training of one run, from its first step or from its last checkpoint. Both ways give the same numbers.

A run is divided into chapters of ``checkpoint_every`` steps. Every chapter begins with new environments, seeded from
the run's seed and the chapter's number, and ends with a checkpoint.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from tsac.agent import TSAC, files
from tsac.runs import checkpoints, records, replay, state
from tsac.runs.agents import Normalizer, make_agent, normalization_state, predictor, save_agent
from tsac.runs.chapters import ResumeError, make_environments
from tsac.runs.evaluation import Evaluator, Summary, evaluate_file, summary
from tsac.runs.folder import RunFolder
from tsac.runs.outputs import make_writers
from tsac.runs.progress import Progress
from tsac.runs.spec import RunSpec, task_options


class Interrupted(Exception):  # noqa: N818 - not an error
    """The run in the folder that is named was asked to stop, and has."""


def train(
    folder: RunFolder, spec: RunSpec, progress: Progress, wandb: bool = False, minutes: float | None = None
) -> Summary | None:
    """Train a run to its end, from where it is.

    :param minutes: stop after that time as if somebody had asked for it
    :return: of the last evaluation
    """
    if spec.threads:
        torch.set_num_threads(spec.threads)
    with folder.locked(), _asked_to_stop(minutes) as stop:
        training = Training(folder, spec, progress, wandb)
        try:
            training.go(stop)
        finally:
            training.close()
    return training.last


class Training:
    def __init__(self, folder: RunFolder, spec: RunSpec, progress: Progress, wandb: bool = False) -> None:
        self.folder, self.spec, self.progress = folder, spec, progress
        folder.checkpoints.mkdir(exist_ok=True)
        self.evaluator = Evaluator(spec.task, task_options(spec))
        self.last: Summary | None = None
        self.best: Summary | None = None
        self.seconds = 0.0  # of training, evaluations and checkpoints left out
        self.chapter = 0
        self.manifest: checkpoints.Manifest | None = None
        self.saved = 0  # places of the replay buffer that are in the checkpoint

        found = checkpoints.read_latest(folder.checkpoints, progress.tell)
        self.recorded, env = make_environments(spec, found.state["chapter"] if found else 0)
        self.model = make_agent(spec, env)
        step = found.manifest.step if found else 0
        records.start_evaluations(folder.evaluations, step)
        self.csv = records.TrainingCsv(folder.train, step)
        self.model.set_logger(Logger(str(folder.path), [self.csv, *make_writers(folder, spec, step, progress, wandb)]))
        if found:
            try:
                self._restore(found)
            except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
                if isinstance(error, ResumeError | files.FileError):
                    raise
                raise files.FileError(
                    f"The checkpoint of step {step} does not fit {folder.facts}: {files.reason(error)}"
                ) from error
        else:
            self._begin_chapter()
        _, evaluated = records.last_evaluation(folder.evaluations)
        self.last = summary(evaluated) if evaluated else None

    def go(self, stop: Callable[[], bool]) -> None:
        spec, model = self.spec, self.model
        self.progress.start(model.num_timesteps)
        while model.num_timesteps < spec.steps:
            before, started = model.num_timesteps, time.perf_counter()
            iterate(model, self.callback)
            self.seconds += time.perf_counter() - started
            finished = model.num_timesteps >= spec.steps

            def due(every: int, before: int = before, finished: bool = finished) -> bool:
                return finished or before // every != model.num_timesteps // every

            if due(spec.log_every):
                model.dump_logs()
            if due(spec.evaluate_every) and not (finished and spec.final_episodes):
                self._evaluate()
            if due(spec.checkpoint_every):
                self._end_chapter()
            if stop() and not finished:
                if self.recorded.actions:  # otherwise a chapter has just ended, with a checkpoint
                    self._checkpoint()
                raise Interrupted(self.folder.path)
            self.progress.update(model.num_timesteps, self.last, self.csv.latest)
        self._finish()

    def close(self) -> None:
        self.progress.close()
        self.evaluator.close()
        self.model.logger.close()
        if self.model.env is not None:
            self.model.env.close()

    # -------------------------------------------------------------------------------------- chapters

    def _begin_chapter(self) -> None:
        if self.chapter > 0:
            old = self.model.env
            self.recorded, env = make_environments(self.spec, self.chapter)
            state.share_statistics(old, env)
            self.model.set_env(env)
            if old is not None:
                old.close()
        self._set_up()

    def _end_chapter(self) -> None:
        replay.close_episodes(self.model)
        self.recorded.actions = []
        self.chapter += 1
        self._checkpoint()
        if self.model.num_timesteps < self.spec.steps:
            self._begin_chapter()

    def _set_up(self) -> None:
        """What SB3 does at the start of ``learn``; it resets new environments."""
        model = self.model
        left = self.spec.steps - model.num_timesteps
        _, self.callback = model._setup_learn(left, None, reset_num_timesteps=False)

    def _checkpoint(self) -> None:
        model = self.model
        if isinstance(model, TSAC):
            model._check_losses()
        content = {
            "chapter": self.chapter,
            "collecting": state.take_collecting(model, self.recorded),
            "best": None if self.best is None else tuple(self.best),
            "seconds": self.seconds,
            **state.take(model),
        }
        written = replay.written(model)
        pieces = replay.parts_since(model, self.saved)
        self.manifest = checkpoints.write(
            self.folder.checkpoints, model.num_timesteps, content, self.manifest, pieces, written,
            replay.capacity(model),
        )  # fmt: skip
        self.saved = written
        save_agent(self.folder.policy, model, self.spec, model.num_timesteps, content["normalization"])

    def _restore(self, found: checkpoints.Checkpoint) -> None:
        model, content = self.model, found.state
        for part in found.parts:
            replay.put(model, part)
        self.chapter, self.manifest = content["chapter"], found.manifest
        self.best = None if content["best"] is None else Summary(*content["best"])
        self.seconds = content["seconds"]
        model.num_timesteps = content["agent"]["counters"]["num_timesteps"]
        if content["collecting"] is None:
            # The statistics of before the reset, as a run that goes on has them; the reset counts into them.
            state.put_normalization(model, content)
            self._set_up()
        else:
            model._last_obs = content["collecting"]["remembered"]["_last_obs"]  # so that nothing is reset
            self._set_up()
            state.put_collecting(model, self.recorded, content["collecting"])
            state.put_normalization(model, content)
        state.put(model, content)
        self.saved = replay.written(model)
        # Perhaps the checkpoint was written, but not the policy. The statistics have since counted a reset.
        save_agent(self.folder.policy, model, self.spec, model.num_timesteps, content["normalization"])

    # -------------------------------------------------------------------------------------- evaluations

    def _evaluate(self) -> None:
        model = self.model
        normalizer = Normalizer(normalization_state(model.get_vec_normalize_env()))
        episodes = self.evaluator.play(predictor(model, normalizer), range(self.spec.evaluation_episodes))
        records.append_evaluation(self.folder.evaluations, model.num_timesteps, self.seconds, episodes)
        self._note(summary(episodes))

    def _finish(self) -> None:
        """The evaluation at the end, unless it was made before an interruption."""
        spec = self.spec
        if not spec.final_episodes or is_finished(self.folder, spec):
            return
        self.progress.say(f"{spec.final_episodes} episodes of the trained policy")
        records.start_evaluations(self.folder.evaluations, self.model.num_timesteps - 1)
        episodes = evaluate_file(
            self.folder.policy, spec.task, task_options(spec), spec.final_episodes, spec.evaluation_processes
        )
        self._note(summary(episodes))  # first: once its rows are written, the run is finished
        records.append_evaluation(self.folder.evaluations, self.model.num_timesteps, self.seconds, episodes)

    def _note(self, result: Summary) -> None:
        self.last = result
        if self.best is None or result.order > self.best.order:
            self.best = result
            statistics = normalization_state(self.model.get_vec_normalize_env())
            save_agent(self.folder.best_policy, self.model, self.spec, self.model.num_timesteps, statistics)


def is_finished(folder: RunFolder, spec: RunSpec) -> bool:
    if (checkpoints.latest_step(folder.checkpoints) or 0) < spec.steps:
        return False
    step, episodes = records.last_evaluation(folder.evaluations)
    return not spec.final_episodes or (step >= spec.steps and len(episodes) == spec.final_episodes)


def iterate(model: BaseAlgorithm, callback: BaseCallback) -> None:
    """What SB3's ``learn`` does between two looks at the number of steps: collect, then update."""
    assert model.env is not None
    if isinstance(model, OnPolicyAlgorithm):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model.train()
        return
    assert isinstance(model, OffPolicyAlgorithm)
    frequency: Any = model.train_freq
    assert model.replay_buffer is not None
    collected = model.collect_rollouts(
        model.env, callback, frequency, model.replay_buffer, model.action_noise, model.learning_starts
    )
    if model.num_timesteps > model.learning_starts:
        updates = model.gradient_steps if model.gradient_steps >= 0 else collected.episode_timesteps
        if updates > 0:
            model.train(batch_size=model.batch_size, gradient_steps=updates)


@contextmanager
def _asked_to_stop(minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Ctrl-C, SIGTERM and the end of the time ask to stop after the iteration; a second Ctrl-C stops at once."""
    asked: list[int] = []
    end = math.inf if minutes is None else time.monotonic() + 60.0 * minutes

    def ask(number: int, _frame: Any) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are somebody else's business
        before = {}
    try:
        yield lambda: bool(asked) or time.monotonic() >= end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
