"""The prefix critic: one state and the actions that followed in, one value per prefix of those actions out.

All critics of an agent are evaluated together: every parameter has a leading dimension ``critics``, and every
product is a batched one.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsac.agent.engine import Precision, stacked_product

INIT_STD = 0.02


class StackedLinear(nn.Module):
    """One linear map without bias per critic."""

    precision: Precision = "highest"

    def __init__(self, critics: int, inputs: int, outputs: int, std: float = INIT_STD) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(critics, outputs, inputs))
        nn.init.normal_(self.weight, std=std)

    def forward(self, x: Tensor) -> Tensor:
        """:param x: # [critics, ..., inputs], or [batch, inputs] shared by all critics"""
        if x.dim() == 2:
            return torch.matmul(x, self.weight.transpose(1, 2))
        return stacked_product(x, self.weight, self.precision)


class StackedLayerNorm(nn.Module):
    """Layer normalisation without bias, one scale per critic."""

    def __init__(self, critics: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(critics, width))

    def forward(self, x: Tensor) -> Tensor:  # [critics, batch, tokens, width]
        return F.layer_norm(x, x.shape[-1:]) * self.weight[:, None, None, :]


class Block(nn.Module):
    """Pre-norm Transformer block: causal self-attention, then an MLP of four times the width."""

    def __init__(self, critics: int, width: int, heads: int, residual_std: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = StackedLayerNorm(critics, width)
        self.queries_keys_values = StackedLinear(critics, width, 3 * width)
        self.attention_out = StackedLinear(critics, width, width, residual_std)
        self.norm_mlp = StackedLayerNorm(critics, width)
        self.mlp_in = StackedLinear(critics, width, 4 * width)
        self.mlp_out = StackedLinear(critics, 4 * width, width, residual_std)

    def attend(self, x: Tensor, first: int) -> Tensor:
        critics, batch, tokens, width = x.shape
        size = width // self.heads

        def per_head(y: Tensor) -> Tensor:  # [critics, batch, tokens, width] -> [critics * batch * heads, tokens, size]
            return y.reshape(critics * batch, -1, self.heads, size).transpose(1, 2).reshape(-1, y.shape[2], size)

        if first == 0:
            queries, keys, values = map(per_head, self.queries_keys_values(x).split(width, dim=-1))
        else:
            query_weight, key_value_weight = self.queries_keys_values.weight.split([width, 2 * width], dim=1)
            queries = per_head(stacked_product(x[:, :, first:], query_weight, self.queries_keys_values.precision))
            keys, values = map(
                per_head, stacked_product(x, key_value_weight, self.queries_keys_values.precision).split(width, dim=-1)
            )
        # Written out: for the few tokens of a window this is faster than the general attention kernel.
        future = torch.full((tokens - first, tokens), -math.inf, dtype=x.dtype, device=x.device).triu(first + 1)
        scores = torch.baddbmm(future, queries, keys.transpose(1, 2), alpha=size**-0.5)
        mixed = torch.bmm(scores.softmax(dim=-1), values).view(critics, batch, self.heads, tokens - first, size)
        out: Tensor = self.attention_out(mixed.transpose(2, 3).reshape(critics, batch, tokens - first, width))
        return out

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """:param first: the outputs of earlier tokens are not needed and left out"""
        x = x[:, :, first:] + self.attend(self.norm_attention(x), first)
        out: Tensor = x + self.mlp_out(F.gelu(self.mlp_in(self.norm_mlp(x))))
        return out


class TransformerBody(nn.Module):
    """Learned positions counted from the window's start, blocks, final normalisation."""

    def __init__(self, critics: int, width: int, layers: int, heads: int, max_tokens: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.empty(critics, max_tokens, width))
        nn.init.normal_(self.positions, std=INIT_STD)
        residual_std = INIT_STD / math.sqrt(2 * layers)
        self.blocks = nn.ModuleList(Block(critics, width, heads, residual_std) for _ in range(layers))
        self.norm = StackedLayerNorm(critics, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """
        :param tokens: the state's, then one per action  # [critics, batch, 1 + length, width]
        :return: one output per action  # [critics, batch, length, width]
        """
        x = tokens + self.positions[:, None, : tokens.shape[2]]
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            x = block(x, first=1 if number == last else 0)  # nobody asks for the state's output
        out: Tensor = self.norm(x)
        return out


class PrefixCritic(nn.Module):
    """Values of all action prefixes of a window, for several critics at once.

    :param state_dim: length of the flattened observation
    :param action_dim: length of the flattened action
    :param critics: how many independent critics
    :param width: width of a token
    :param layers: number of blocks
    :param heads: attention heads; must divide ``width``
    :param max_length: the most actions a window may hold
    :param step_in_state: append the (scaled) step index to the state token's input
    :param step_in_actions: append the (scaled) step index to every action token's input
    :param episode_length: what step indices are divided by
    :param precision: of the products inside the blocks
    """

    def __init__(
        self,
        state_dim: int,
        action_dim: int,
        *,
        critics: int = 2,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        max_length: int = 16,
        step_in_state: bool = False,
        step_in_actions: bool = False,
        episode_length: int = 1,
        precision: Precision = "highest",
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"The critic's width ({width}) must be a multiple of its number of heads ({heads}).")
        self.max_length = max_length
        self.step_in_state = step_in_state
        self.step_in_actions = step_in_actions
        self.episode_length = episode_length
        self.embed_state = StackedLinear(critics, state_dim + step_in_state, width)
        self.embed_action = StackedLinear(critics, action_dim + step_in_actions, width)
        self.body = TransformerBody(critics, width, layers, heads, max_tokens=max_length + 1)
        self.head = StackedLinear(critics, width, 1)
        for block in self.body.blocks:  # embeddings and head are small and stay in single precision
            for layer in block.modules():
                if isinstance(layer, StackedLinear):
                    layer.precision = precision

    def forward(self, states: Tensor, actions: Tensor, steps: Tensor | None = None) -> Tensor:
        """
        :param states: the state that each window starts from  # [batch, state_dim]
        :param actions: # [batch, length, action_dim]
        :param steps: index of the window's first step within its episode  # [batch]
        :return: value of the prefix that ends with each action  # [critics, batch, length]
        """
        batch, length, _ = actions.shape
        if steps is not None:
            if self.step_in_actions:
                step_of_action = steps.unsqueeze(1) + torch.arange(length, device=steps.device)
                actions = append_step(actions, step_of_action, self.episode_length)
            if self.step_in_state:
                states = append_step(states, steps, self.episode_length)
        state_tokens = self.embed_state(states).unsqueeze(2)  # [critics, batch, 1, width]
        action_tokens = self.embed_action(actions.reshape(batch * length, -1))
        action_tokens = action_tokens.view(-1, batch, length, action_tokens.shape[-1])
        outputs = self.body(torch.cat([state_tokens, action_tokens], dim=2))
        values: Tensor = self.head(outputs).squeeze(-1)
        return values


def append_step(inputs: Tensor, steps: Tensor, episode_length: int) -> Tensor:
    """Append the step index, as a share of the episode, to the last dimension."""
    share = (steps.to(inputs.dtype) / episode_length).unsqueeze(-1)
    return torch.cat([inputs, share], dim=-1)
