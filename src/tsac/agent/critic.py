"""The prefix critic: one state and the actions that followed in, one value per prefix of those actions out.

All critics of an agent are evaluated together: every parameter has a leading dimension ``critics``, and every
product is a batched one.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsac.agent.blocks import Precision, block

INIT_STD = 0.02


class StackedLinear(nn.Module):
    """One linear map without bias per critic."""

    def __init__(self, critics: int, inputs: int, outputs: int, std: float = INIT_STD) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(critics, outputs, inputs))
        nn.init.normal_(self.weight, std=std)

    def forward(self, x: Tensor) -> Tensor:
        """:param x: # [critics, ..., inputs], or [batch, inputs] shared by all critics"""
        if x.dim() == 2:
            return torch.matmul(x, self.weight.transpose(1, 2))
        critics, outputs, inputs = self.weight.shape
        product = torch.bmm(x.reshape(critics, -1, inputs), self.weight.transpose(1, 2))
        return product.view(*x.shape[:-1], outputs)


class StackedLayerNorm(nn.Module):
    """Layer normalisation without bias, one scale per critic."""

    def __init__(self, critics: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(critics, width))

    def forward(self, x: Tensor) -> Tensor:  # [critics, batch, tokens, width]
        return F.layer_norm(x, x.shape[-1:]) * self.weight[:, None, None, :]


class Block(nn.Module):
    """Pre-norm Transformer block: causal self-attention, then an MLP of four times the width."""

    def __init__(self, critics: int, width: int, heads: int, residual_std: float, precision: Precision) -> None:
        super().__init__()
        self.heads = heads
        self.precision = precision
        self.norm_attention = StackedLayerNorm(critics, width)
        self.queries_keys_values = StackedLinear(critics, width, 3 * width)
        self.attention_out = StackedLinear(critics, width, width, residual_std)
        self.norm_mlp = StackedLayerNorm(critics, width)
        self.mlp_in = StackedLinear(critics, width, 4 * width)
        self.mlp_out = StackedLinear(critics, 4 * width, width, residual_std)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """:param first: the outputs of earlier tokens are not needed and left out"""
        return block(
            x,
            self.norm_attention.weight,
            self.queries_keys_values.weight,
            self.attention_out.weight,
            self.norm_mlp.weight,
            self.mlp_in.weight,
            self.mlp_out.weight,
            self.heads,
            first,
            self.precision,
        )


class TransformerBody(nn.Module):
    """Learned positions counted from the window's start, blocks, final normalisation."""

    def __init__(
        self, critics: int, width: int, layers: int, heads: int, max_tokens: int, precision: Precision = "highest"
    ) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.empty(critics, max_tokens, width))
        nn.init.normal_(self.positions, std=INIT_STD)
        residual_std = INIT_STD / math.sqrt(2 * layers)
        self.blocks = nn.ModuleList(Block(critics, width, heads, residual_std, precision) for _ in range(layers))
        self.norm = StackedLayerNorm(critics, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """
        :param tokens: the state's, then one per action  # [critics, batch, 1 + length, width]
        :return: one output per action  # [critics, batch, length, width]
        """
        x = tokens + self.positions[:, None, : tokens.shape[2]]
        last = len(self.blocks) - 1
        for number, layer in enumerate(self.blocks):
            x = layer(x, first=1 if number == last else 0)  # nobody asks for the state's output
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
        self.body = TransformerBody(critics, width, layers, heads, max_length + 1, precision)
        self.head = StackedLinear(critics, width, 1)  # small, as the embeddings are: always in full precision

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
