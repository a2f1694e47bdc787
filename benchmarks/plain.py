"""What our update is measured against: the same arithmetic as a researcher would write it first.

Single precision, eager, two separate critics with an AdamW each; PyTorch's own modules, attention, clipping and
optimiser.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width, bias=False)
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.queries_keys_values(self.norm_attention(x)).split(width, dim=-1)
        q, k, v = (y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm_mlp(x))


class Critic(nn.Module):
    def __init__(self, state_dim: int, action_dim: int, width: int, layers: int, heads: int, max_length: int) -> None:
        super().__init__()
        self.embed_state = nn.Linear(state_dim, width, bias=False)
        self.embed_action = nn.Linear(action_dim, width, bias=False)
        self.positions = nn.Embedding(max_length + 1, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, 1, bias=False)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        tokens = torch.cat([self.embed_state(states).unsqueeze(1), self.embed_action(actions)], dim=1)
        x = tokens + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))[:, 1:, 0]


class Plain:
    """Two critics and their optimisers.

    :param sizes: arguments of ``Critic``
    """

    def __init__(self, *sizes: int) -> None:
        self.critics = [Critic(*sizes) for _ in range(2)]
        self.targets = [Critic(*sizes) for _ in range(2)]
        self.optimizers = [torch.optim.AdamW(c.parameters(), lr=3e-4, betas=(0.5, 0.95)) for c in self.critics]

    def update_critic(
        self, states: Tensor, actions: Tensor, rewards: Tensor, ends: Tensor, terminated: Tensor, next_values: Tensor
    ) -> None:
        """One critic update, from the cut window on."""
        length = rewards.shape[1]
        discounts = 0.99 ** torch.arange(length)
        targets = torch.cumsum(rewards * discounts, 1) + 0.99 * discounts * next_values * (1 - terminated.float())
        valid = (torch.cumsum(ends.float(), 1) - ends.float() == 0).float()
        actions = actions * valid.unsqueeze(-1)
        for critic, optimizer in zip(self.critics, self.optimizers, strict=True):
            loss = (valid * (critic(states, actions) - targets) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            optimizer.step()

    @torch.no_grad()
    def next_values(self, states: Tensor, actions: Tensor) -> Tensor:
        """Of a whole round at once."""
        values = [critic(states, actions)[:, 0] for critic in self.targets]
        return torch.min(*values)

    def update_actor(
        self, actor: nn.Module, optimizer: torch.optim.Optimizer, states: Tensor, steps: Tensor, inputs: Callable
    ) -> None:
        """:param inputs: puts the step index into states and actions, where the critic sees it"""
        sample = actor.sample(states, steps)
        seen, actions = inputs(states, sample.actions.unsqueeze(1))
        values = torch.min(*(critic(seen, actions)[:, 0] for critic in self.critics))
        loss = -(values + 0.1 * sample.entropy).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        optimizer.step()
