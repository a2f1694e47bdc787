"""Compare T-SAC's updates with a recording of the published implementation, in double precision.

    python tests/agent/golden.py FILE.npz

prints the largest relative difference per quantity and exits 1 where one is above 1e-8.

A recording holds the weights before, a batch of segments, the next-state values, the windows and the actor's noise,
then the losses, gradient norms, entropies and the weights after.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from tsac import TSAC
from tsac.agent.segments import SegmentBatch
from tsac.agent.targets import reduce_values

TOLERANCE = 1e-8
CRITIC_NAMES = {
    "embed_state.weight": "transformer.state_encoder.weight",
    "embed_action.weight": "transformer.action_encoder.weight",
    "body.positions": "transformer.pos_enc.weight",
    "body.norm.weight": "transformer.ln_f.weight",
    "head.weight": "output_layer.weight",
    "norm_attention": "ln_1",
    "norm_mlp": "ln_2",
    "queries_keys_values": "attn.c_attn",
    "attention_out": "attn.c_proj",
    "mlp_in": "mlp.c_fc",
    "mlp_out": "mlp.c_proj",
}
# The recording names the reduction in the published code's own word.
REDUCTIONS = {"False": "min", "min": "min", "minimum": "min", "mean": "mean", "average": "mean"}


class Spaces(gym.Env[Any, Any]):
    """An environment of the recorded sizes, which is never stepped."""

    def __init__(self, state_dim: int, action_dim: int) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (state_dim,))
        self.action_space = spaces.Box(-1.0, 1.0, (action_dim,))

    def reset(self, **kwargs: Any) -> Any:
        return np.zeros(self.observation_space.shape, np.float32), {}


def number_or_none(text: Any) -> float | None:
    value = ast.literal_eval(str(text)) if str(text) not in ("inf", "nan") else None
    return float(value) if value else None


def critic_name(name: str) -> str:
    """Our parameter's name -> the recording's."""
    if name in CRITIC_NAMES:
        return CRITIC_NAMES[name]
    _, _, block, part, weight = name.split(".")
    return f"transformer.h.{block}.{CRITIC_NAMES[part]}.{weight}"


class Recording:
    def __init__(self, path: str | Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file.files}
        self.config: dict[str, Any] = ast.literal_eval(str(self.arrays["config"]))

    def __getitem__(self, key: str) -> Tensor:
        return torch.as_tensor(self.arrays[key])

    def critic_parameter(self, owner: str, name: str) -> Tensor:
        """Both critics' arrays, stacked. ``owner``: critic or target."""
        moment = "after" if owner.endswith("after") else "before"
        owner = owner.removesuffix("_after")
        names = [
            f"{owner}{i}_{moment}/{critic_name(name)}"
            for i in (1, 2)
            if f"{owner}{i}_{moment}/{critic_name(name)}" in self.arrays
        ]
        return torch.stack([self[n] for n in names])

    def actor_parameter(self, name: str, moment: str) -> Tensor:
        network, rest = name.split(".", 1)
        prefix = {"mean": "mean", "std": "logstd"}[network]
        part = {"mean": "mean", "std": "variance"}[network]
        return self[f"{prefix}_{moment}/RLACPolicy_{part}_mlp.{rest}"]

    def windows(self) -> list[tuple[int, int]]:
        return list(zip(self["window_start"].tolist(), self["window_length"].tolist(), strict=True))


def make_agent(recording: Recording, value_reduction: str) -> TSAC:
    """An agent of the recording's sizes and settings, in double precision, with the weights from before."""
    config = recording.config
    hidden = recording["mean_before/RLACPolicy_mean_mlp.0.weight"].shape[0]
    norm_layers = sum(key.startswith("mean_before") and key.endswith("weight") for key in recording.arrays)
    positions = recording["critic1_before/transformer.pos_enc.weight"].shape[0]
    layers = len({key.split(".")[2] for key in recording.arrays if key.startswith("critic1_before/transformer.h.")})
    tau = float(config["rate"])
    model = TSAC(
        "MlpPolicy",
        Spaces(config["S"], config["A"]),
        learning_rate=float(config["lr"]),
        segment_length=max(config["L"], positions - 1),
        min_length=1,
        max_length=positions - 1,
        batch_size=config["B"],
        critic_updates=1,
        gamma=float(config["gamma"]),
        tau=tau,
        freeze_interval=None if tau < 1.0 else 2,  # anything that keeps a target network
        value_reduction=value_reduction,  # type: ignore[arg-type]
        ent_coef="auto",
        entropy="gaussian",
        max_grad_norm=number_or_none(config["clip"]),
        weight_decay=float(config["wd"]),
        critic_betas=tuple(config["critic_betas"]),  # type: ignore[arg-type]
        policy_kwargs={
            "net_arch": [hidden] * ((norm_layers - 1) // 2),
            "critic_width": config["D"],
            "critic_layers": layers,
            "critic_heads": config["H"],
        },
        device="cpu",
    )
    model.policy.double()
    with torch.no_grad():
        for name, parameter in model.critic.named_parameters():
            parameter.copy_(recording.critic_parameter("critic", name))
        model.critic_target.load_state_dict(model.critic.state_dict())
        if "target1_before/output_layer.weight" in recording.arrays:
            for name, parameter in model.critic_target.named_parameters():
                parameter.copy_(recording.critic_parameter("target", name))
        for name, parameter in model.actor.named_parameters():
            parameter.copy_(recording.actor_parameter(name, "before"))
        model.ent_coef_parameter = torch.tensor(-5.0, dtype=torch.float64, requires_grad=True)
    model._make_optimizers()
    return model


def segments_of(recording: Recording) -> SegmentBatch:
    ends = recording["dones"].bool()
    return SegmentBatch(
        observations=recording["states"][:, :-1],
        next_observations=recording["states"][:, 1:],
        actions=recording["actions"],
        rewards=recording["rewards"],
        terminated=ends,
        ends=ends,
        steps=torch.zeros(ends.shape, dtype=torch.int64),
    )


def first_loss(recording: Recording, value_reduction: str) -> Tensor:
    model = make_agent(recording, value_reduction)
    start, length = recording.windows()[0]
    values = reduce_values(torch.stack([recording["v1"], recording["v2"]]), model.value_reduction)
    return model.update_critic(model.make_window(segments_of(recording), values, start, length))[0]


def reduction_of(recording: Recording) -> str:
    """The recording's word for it or, where the word says nothing to us, the one that its first loss agrees with."""
    word = str(recording.config.get("target"))
    if word in REDUCTIONS:
        return REDUCTIONS[word]
    recorded = recording["critic_loss"][0]
    return min(("min", "mean"), key=lambda how: difference(first_loss(recording, how), recorded))


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, relative to the largest magnitude of the recorded quantity."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-300))


def compare(path: str | Path) -> dict[str, float]:
    """Largest relative difference per quantity."""
    recording = Recording(path)
    model = make_agent(recording, reduction_of(recording))
    segments = segments_of(recording)
    next_values = reduce_values(torch.stack([recording["v1"], recording["v2"]]), model.value_reduction)
    found: dict[str, list[float]] = {}

    def note(quantity: str, ours: Tensor, theirs: Tensor) -> None:
        found.setdefault(quantity, []).append(difference(ours.detach(), theirs))

    for update, (start, length) in enumerate(recording.windows()):
        losses, norms = model.update_critic(model.make_window(segments, next_values, start, length))
        if model.tau < 1.0:
            model.update_target()
        note("critic loss", losses, recording["critic_loss"][update])
        note("critic gradient norm", norms, recording["critic_grad_norm"][update])
    if model.tau == 1.0:
        model.critic_target.load_state_dict(model.critic.state_dict())  # the hard copy that the next round starts with
    for name, parameter in model.critic.named_parameters():
        note(f"critic {name}", parameter, recording.critic_parameter("critic_after", name))
    for name, parameter in model.critic_target.named_parameters():
        recorded = recording.critic_parameter("target_after", name)
        note(f"target {name}", parameter[: recorded.shape[0]], recorded)

    # Actor updates may look at any state of the segment, the last one included.
    steps = torch.zeros(len(recording["states"]), dtype=torch.int64)
    for update, index in enumerate(recording["policy_index"].tolist()):
        loss, entropy = model.update_actor(recording["states"][:, index], steps, recording["policy_eps"][update])
        note("actor loss", loss, recording["policy_loss"][update])
        note("entropy", entropy, recording["entropy"][update])
    for name, parameter in model.actor.named_parameters():
        note(f"actor {name}", parameter, recording.actor_parameter(name, "after"))
    assert model.ent_coef_parameter is not None
    note("temperature parameter", model.ent_coef_parameter, recording["alpha_param_after"])
    return {quantity: max(differences) for quantity, differences in found.items()}


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        print("usage: python tests/agent/golden.py FILE.npz", file=sys.stderr)
        return 2
    differences = compare(sys.argv[1])
    for quantity, value in differences.items():
        print(f"{quantity:<45} {value:9.2e}  {'ok' if value <= TOLERANCE else 'MISSED'}")
    worst = max(differences.values())
    print(f"{'largest':<45} {worst:9.2e}  {'ok' if worst <= TOLERANCE else f'above {TOLERANCE}'}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
