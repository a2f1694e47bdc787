"""What T-SAC refuses at construction, in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from tsac.agent.segments import SegmentReplayBuffer

if TYPE_CHECKING:
    from tsac.agent.tsac import TSAC

OF_THE_ALGORITHM = ("max_length", "chunk_length", "entropy", "precision", "target_free")
PARTS_OF_THE_TRANSFORMER = ("critic_residual", "critic_causal", "critic_attention")


def check_spaces(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
    """Refuse what T-SAC cannot learn from, in a sentence."""
    if not isinstance(actions, spaces.Box):
        raise ValueError(f"T-SAC needs continuous actions, a Box; this task has {actions}.")
    parts = observations.spaces.values() if isinstance(observations, spaces.Dict) else [observations]
    for part in parts:
        if is_image_space(part):
            raise ValueError(
                f"T-SAC does not learn from images; supported are vectors and dictionaries of vectors, not {part}."
            )
        if isinstance(part, spaces.Discrete) and part.start != 0:
            raise ValueError(f"Stable-Baselines3 counts discrete observations from 0; this task has {part}.")


def check_settings(agent: TSAC) -> None:
    """Refuse settings that no agent could have, in a sentence."""

    def one_of(name: str, choices: Sequence[str]) -> None:
        if getattr(agent, name) not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(agent, name)!r}.")

    one_of("windows", ["shared", "per_segment"])
    one_of("value_reduction", ["min", "mean", "random"])
    one_of("return_propagation", ["gradients", "targets", "longest"])
    one_of("entropy", ["gaussian", "squashed"])
    one_of("precision", ["highest", "bf16"])
    if not 1 <= agent.min_length <= agent.max_length:
        raise ValueError(
            f"Window lengths need 1 <= min_length <= max_length; got {agent.min_length}, {agent.max_length}."
        )
    if agent.max_length > agent.segment_length:
        raise ValueError(
            f"A window (max_length={agent.max_length}) must fit in a segment ({agent.segment_length} steps)."
        )
    if not 1 <= agent.chunk_length <= agent.max_length:
        raise ValueError(
            f"The critic values up to max_length={agent.max_length} actions, and so chunks of 1 to as many; "
            f"got chunk_length={agent.chunk_length}."
        )
    check_critic(agent)
    for name in ("critic_updates", "batch_size"):
        if getattr(agent, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(agent, name)}.")
    if agent.rounds < 1 and agent.rounds != -1:
        raise ValueError(f"rounds must be at least 1, or -1 for one per environment; got {agent.rounds}.")
    if agent.actor_updates < 0:
        raise ValueError(f"actor_updates must not be negative; got {agent.actor_updates}.")
    if not 0.0 <= agent.gamma <= 1.0:
        raise ValueError(f"gamma must be between 0 and 1; got {agent.gamma}.")
    if agent.max_grad_norm is not None and agent.max_grad_norm <= 0.0:
        raise ValueError(f"max_grad_norm must be above 0, or None for no clipping; got {agent.max_grad_norm}.")
    if not 0.0 < agent.tau <= 1.0:
        raise ValueError(f"tau must be above 0 and at most 1; got {agent.tau}.")
    if agent.freeze_interval is not None:
        if agent.tau != 1.0:
            raise ValueError("freeze_interval belongs to the hard copy: use it with tau=1, or leave it out.")
        if agent.freeze_interval < agent.critic_updates:
            raise ValueError(
                f"Next-state values are computed once a round, so freeze_interval ({agent.freeze_interval}) must be "
                f"at least critic_updates ({agent.critic_updates})."
            )
    if agent.replay_buffer_class is None or not issubclass(agent.replay_buffer_class, SegmentReplayBuffer):
        raise ValueError("T-SAC learns from segments: replay_buffer_class must be a SegmentReplayBuffer.")
    if isinstance(agent.ent_coef, str):
        first = agent.ent_coef.removeprefix("auto")
        if first == agent.ent_coef or (first and not _is_positive_number(first.removeprefix("_"))):
            raise ValueError(
                f'ent_coef must be a number, "auto" or "auto_" and a number above 0; got {agent.ent_coef!r}.'
            )
    elif agent.ent_coef < 0.0:
        raise ValueError(f"ent_coef must not be negative; got {agent.ent_coef}.")


def check_critic(agent: TSAC) -> None:
    """Settings that do not go together with every critic."""
    options = agent.policy_kwargs
    for name in OF_THE_ALGORITHM:
        if name in options:
            raise ValueError(f"{name} is decided by the algorithm's own arguments, not by policy_kwargs.")
    body = options.get("critic_body", "transformer")
    missing = [name for name in PARTS_OF_THE_TRANSFORMER if not options.get(name, True)]
    if body != "transformer" and missing:
        raise ValueError(f"{missing[0]} is a part of the Transformer; the critic's body is {body!r}.")
    whole = body == "transformer" and not missing
    if agent.precision != "highest" and not whole:
        raise ValueError(
            f"precision={agent.precision!r} is for the Transformer with all its parts, not for this critic."
        )
    looks_ahead = not options.get("critic_causal", True)
    counts_ahead = body == "mlp" and "actions" in options.get("step_index", ())
    if agent.windows == "per_segment" and (looks_ahead or counts_ahead):
        raise ValueError('This critic looks ahead and would see where shorter windows end: use windows="shared".')


def _is_positive_number(text: str) -> bool:
    try:
        return 0.0 < float(text) < float("inf")
    except ValueError:
        return False
