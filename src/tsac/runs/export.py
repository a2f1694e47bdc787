"""The deterministic policy as ONNX: observations as the task gives them in, actions as the task takes them out."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor, nn

from tsac.agent import TSAC, files
from tsac.runs.agents import Normalizer, load_agent
from tsac.runs.settings import SpecError

OBSERVATIONS = 1_000  # that the exported policy is compared on
TOLERANCE = 1e-4  # of an action, relative to half its range


def export_onnx(policy: Path, output: Path) -> str:
    """Write the policy and compare what it does with the original. Returns what to tell a person."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        message = f'Exporting needs {error.name}, which is not installed: pip install "tsac[export]"'
        raise ModuleNotFoundError(message) from error
    model, normalizer, content = load_agent(policy, "cpu")
    space, actions = model.observation_space, model.action_space
    if not isinstance(space, spaces.Box):
        raise SpecError(f"Only policies of tasks whose observation is one vector can be exported, not {space}.")
    assert isinstance(actions, spaces.Box)
    module = ExportedPolicy(model, normalizer).eval()
    names = ["observation", "step"] if module.needs_step else ["observation"]
    example = _inputs(space, 2, module)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            module, example, dynamo=True, input_names=names, output_names=["action"], opset_version=18, verbose=False,
            dynamic_shapes=tuple({0: torch.export.Dim("batch")} for _ in names),
        )  # fmt: skip
    assert program is not None
    proto = program.model_proto
    facts = {
        "algorithm": content["algorithm"],
        "task": content.get("task"),
        "trained_steps": content.get("step"),
        "observation": {"shape": list(space.shape), "low": space.low.tolist(), "high": space.high.tolist()},
        "action": {"shape": list(actions.shape), "low": actions.low.tolist(), "high": actions.high.tolist()},
    }
    onnx.helper.set_model_props(proto, {key: _as_text(value) for key, value in facts.items()})
    data = proto.SerializeToString()

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    inputs = _inputs(space, OBSERVATIONS, module)
    with torch.no_grad():
        expected = module(*inputs).numpy()
    exported = session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})[0]
    difference = float(np.max(np.abs(exported - expected) / ((actions.high - actions.low) / 2.0)))
    if not difference <= TOLERANCE:
        raise SpecError(
            f"The exported policy acts differently, by up to {difference:.2g} of half the actions' range: not written."
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(output, data)
    return (
        f"{output}: {', '.join(names)} -> action; differs from the original by at most {difference:.1e} of half the "
        f"actions' range on {OBSERVATIONS:,} observations"
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _inputs(space: spaces.Box, count: int, module: ExportedPolicy) -> tuple[Tensor, ...]:
    """Standard normal numbers inside the bounds, around the observations that were met in training."""
    random = np.random.default_rng(0)
    values = module.centre + module.spread * random.standard_normal((count, *space.shape))
    observations = torch.from_numpy(np.clip(values, space.low, space.high).astype(np.float32))
    return (observations, torch.arange(count) % module.steps) if module.needs_step else (observations,)


class ExportedPolicy(nn.Module):
    """Normalisation, policy and the actions' range in one."""

    def __init__(self, model: BaseAlgorithm, normalizer: Normalizer) -> None:
        super().__init__()
        space = model.action_space
        assert isinstance(space, spaces.Box)
        self.policy: Any = model.policy
        self.policy.set_training_mode(False)
        self.needs_step = isinstance(model, TSAC) and model.actor.step_input
        self.steps = model.actor.episode_length if isinstance(model, TSAC) else 1
        length = model.chunk_length if isinstance(model, TSAC) else 1
        self.chunk = (length,) if length > 1 else ()
        self.squashed = bool(getattr(model.policy, "squash_output", False))
        self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))
        self.normalizes = normalizer.state is not None
        self.centre: Any = 0.0
        self.spread: Any = 1.0
        if normalizer.state is not None:
            moments = normalizer.state["observations"]
            self.limit = float(normalizer.state["clip"])
            self.centre = np.asarray(moments["mean"], dtype=np.float32)
            self.spread = np.sqrt(np.asarray(moments["var"]) + normalizer.state["epsilon"]).astype(np.float32)
            self.register_buffer("mean", torch.as_tensor(self.centre))
            self.register_buffer("deviation", torch.as_tensor(self.spread))

    def forward(self, observation: Tensor, step: Tensor | None = None) -> Tensor:
        low: Any = self.low
        high: Any = self.high
        if self.normalizes:
            mean: Any = self.mean
            deviation: Any = self.deviation
            observation = ((observation - mean) / deviation).clamp(-self.limit, self.limit)
        if self.needs_step:
            actions = self.policy._predict(observation, deterministic=True, steps=step)
        else:
            actions = self.policy._predict(observation, deterministic=True)
        actions = actions.reshape(-1, *self.chunk, *low.shape)
        if self.squashed:
            actions = low + 0.5 * (actions + 1.0) * (high - low)
        return torch.minimum(torch.maximum(actions, low), high)
