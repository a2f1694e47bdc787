"""The parts of a round at the paper's settings and at ours, beside a plain version of the same arithmetic."""

from __future__ import annotations

import copy
from typing import Any

import plain
import torch
from measure import Work, critic_operations, seconds

from tsac import TSAC
from tsac.agent.segments import SegmentBatch

SETTINGS = {
    "paper, MuJoCo": ("mujoco", "full", "HalfCheetah-v4"),
    "paper, Meta-World": ("metaworld", "full", "metaworld/window-open-v3"),
    "paper, Box-Pushing": ("box-pushing-dense", "full", "tsac/BoxPushingDense-v0"),
    "laptop": ("mujoco", "laptop", "HalfCheetah-v4"),
    "very small": ("mujoco", "laptop", "HalfCheetah-v4"),
}
SMALL: dict[str, Any] = {"batch_size": 32, "policy_kwargs": {"critic_width": 32}}
LENGTH = 8  # of the windows: about the mean of 1 to 16


def make(setting: str, precision: str) -> TSAC:
    preset, scale, task = SETTINGS[setting]
    torch.manual_seed(0)
    changes = copy.deepcopy(SMALL) if setting == "very small" else {}
    return TSAC.from_preset(
        preset, task, scale=scale, buffer_size=1, device="cpu", seed=0, precision=precision, **changes
    )


def random_segments(model: TSAC) -> SegmentBatch:
    """As if sampled from the buffer of a task whose episodes never end."""
    shape = (model.batch_size, model.segment_length)
    observations = model.observation_space.shape[0]
    none = torch.zeros(shape, dtype=torch.bool)
    return SegmentBatch(
        torch.randn(*shape, observations), torch.randn(*shape, observations),
        torch.rand(*shape, model.actor.mean[-1].out_features) * 2.0 - 1.0, torch.randn(shape), none, none,
        torch.arange(model.segment_length).expand(shape),
    )  # fmt: skip


class Sides:
    """The same piece of work in our two precisions and in the plain version."""

    def __init__(self, setting: str, length: int = LENGTH) -> None:
        self.models = {precision: make(setting, precision) for precision in ("highest", "bf16")}
        model = self.models["highest"]
        self.model, self.length = model, length
        self.segments = random_segments(model)
        critic = model.critic
        self.width, self.layers = critic.embed_state.weight.shape[1], len(critic.body.blocks)
        self.plain = plain.Plain(
            critic.embed_state.weight.shape[2], critic.embed_action.weight.shape[2], self.width, self.layers,
            critic.body.blocks[0].parts.heads, model.max_length,
        )  # fmt: skip
        self.actor = copy.deepcopy(model.actor)
        self.actor_optimizer = torch.optim.AdamW(self.actor.parameters(), lr=3e-4)

    def critic_update(self) -> dict[str, Work]:
        segments, length = self.segments, self.length
        values = torch.randn(segments.rewards.shape)

        def ours(model: TSAC) -> Work:
            return lambda: model.update_critic(model.make_window(segments, values, 0, length))

        def theirs() -> None:
            states, actions = self._inputs(segments.observations[:, 0], segments.actions[:, :length])
            cut = (segments.rewards, segments.ends, segments.terminated, values)
            self.plain.update_critic(states, actions, *(x[:, :length] for x in cut))

        return {**{name: ours(model) for name, model in self.models.items()}, "plain": theirs}

    def actor_update(self) -> dict[str, Work]:
        states, steps = self.segments.observations[:, 0], self.segments.steps[:, 0]

        def ours(model: TSAC) -> Work:
            return lambda: model.update_actor(states, steps)

        def theirs() -> None:
            self.plain.update_actor(self.actor, self.actor_optimizer, states, steps, self._inputs)

        return {**{name: ours(model) for name, model in self.models.items()}, "plain": theirs}

    def next_state_values(self) -> dict[str, Work]:
        segments = self.segments

        def ours(model: TSAC) -> Work:
            return lambda: model.next_state_values(segments)

        def theirs() -> None:
            states = segments.next_observations.flatten(0, 1)
            with torch.no_grad():
                actions = self.actor.sample(states, segments.steps.reshape(-1)).actions
            states, chunks = self._inputs(states, actions.unsqueeze(1))
            self.plain.next_values(states, chunks)

        return {**{name: ours(model) for name, model in self.models.items()}, "plain": theirs}

    def _inputs(self, states: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """With room for the step index where the critic sees it."""
        critic = self.model.critic
        if critic.step_in_state:
            states = torch.cat([states, torch.zeros(len(states), 1)], dim=-1)
        if critic.step_in_actions:
            actions = torch.cat([actions, torch.zeros(*actions.shape[:2], 1)], dim=-1)
        return states, actions

    def critic_operations(self) -> float:
        return critic_operations(self.model.batch_size, self.length + 1, self.width, self.layers, 2, 3)

    def value_operations(self) -> float:
        states = self.model.batch_size * self.model.segment_length
        return critic_operations(states, 2, self.width, self.layers, 2, 1)


def rows(settings: list[str], budget: float, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Milliseconds of every part, our ratio to the plain version first."""
    found = []
    for setting in settings:
        sides = Sides(setting)
        works = {
            f"critic update, {LENGTH} steps": (sides.critic_update(), sides.critic_operations()),
            "actor update": (sides.actor_update(), None),
        }
        if setting in ("paper, MuJoCo", "laptop"):  # the others have tens of thousands of states in a round
            works["next-state values of a round"] = (sides.next_state_values(), sides.value_operations())
        for part, (sides_of_part, operations) in works.items():
            taken = seconds(sides_of_part, budget)
            row: dict[str, Any] = {"what": f"{setting}: {part}", "unit": "ms"}
            row["plain / ours"] = taken["plain"] / taken["highest"]
            row["plain / bf16"] = taken["plain"] / taken["bf16"]
            row |= {"ours": 1e3 * taken["highest"], "ours, bf16": 1e3 * taken["bf16"], "plain": 1e3 * taken["plain"]}
            if operations is not None:
                row["limit"] = 1e3 * operations / rates["highest"]
                row["limit, bf16"] = 1e3 * operations / rates["bf16"]
            found.append(row)
    return found
