"""Transformer-based Soft Actor-Critic for Stable-Baselines3."""

from typing import TYPE_CHECKING, Any

from tsac import tasks

if TYPE_CHECKING:
    from tsac.agent import TSAC, SegmentReplayBuffer

__all__ = ["TSAC", "SegmentReplayBuffer", "tasks"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """PyTorch takes seconds to import: only who asks for an agent waits for it."""
    if name in ("TSAC", "SegmentReplayBuffer"):
        from tsac import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'tsac' has no attribute {name!r}")
