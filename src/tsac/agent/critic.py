"""The prefix critic: one state and the actions that followed in, one value per prefix of those actions out.

All critics of an agent are evaluated together: every parameter has a leading dimension ``critics``, and every
product is a batched one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsac.agent.blocks import Precision, block

INIT_STD = 0.02


class StackedLinear(nn.Module):
    """One linear map per critic."""

    def __init__(self, critics: int, inputs: int, outputs: int, std: float = INIT_STD, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(critics, outputs, inputs))
        nn.init.normal_(self.weight, std=std)
        self.bias = nn.Parameter(torch.zeros(critics, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """:param x: # [critics, ..., inputs], or [batch, inputs] shared by all critics"""
        critics, outputs, inputs = self.weight.shape
        if x.dim() == 2:
            product = torch.matmul(x, self.weight.transpose(1, 2))
        else:
            product = torch.bmm(x.reshape(critics, -1, inputs), self.weight.transpose(1, 2))
        if self.bias is not None:
            product = product + self.bias.unsqueeze(1)
        return product if x.dim() == 2 else product.view(*x.shape[:-1], outputs)


class StackedLayerNorm(nn.Module):
    """Layer normalisation without bias, one scale per critic."""

    def __init__(self, critics: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(critics, width))

    def forward(self, x: Tensor) -> Tensor:  # [critics, batch, tokens, width]
        return F.layer_norm(x, x.shape[-1:]) * self.weight[:, None, None, :]


# ------------------------------------------------------------------------------------------ sequence bodies
#
# A body takes tokens, the state's and then one per action  # [critics, batch, 1 + length, width]
# and gives one output per action                           # [critics, batch, length, width]


class Block(nn.Module):
    """Pre-norm Transformer block: causal self-attention, then an MLP of four times the width."""

    def __init__(self, critics: int, width: int, residual_std: float, parts: TransformerParts) -> None:
        super().__init__()
        self.parts = parts
        if parts.attention:
            self.norm_attention = StackedLayerNorm(critics, width)
            self.queries_keys_values = StackedLinear(critics, width, 3 * width)
            self.attention_out = StackedLinear(critics, width, width, residual_std)
        self.norm_mlp = StackedLayerNorm(critics, width)
        self.mlp_in = StackedLinear(critics, width, 4 * width)
        self.mlp_out = StackedLinear(critics, 4 * width, width, residual_std)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """:param first: the outputs of earlier tokens are not needed and left out"""
        parts = self.parts
        if not (parts.attention and parts.causal and parts.residual):
            return self.reduced(x)[:, :, first:]
        return block(
            x,
            self.norm_attention.weight,
            self.queries_keys_values.weight,
            self.attention_out.weight,
            self.norm_mlp.weight,
            self.mlp_in.weight,
            self.mlp_out.weight,
            parts.heads,
            first,
            parts.precision,
        )

    def reduced(self, x: Tensor) -> Tensor:
        """The block without some of its parts: for ablations, and so written plainly."""
        parts = self.parts
        if parts.attention:
            critics, batch, tokens, width = x.shape
            qkv = self.queries_keys_values(self.norm_attention(x)).view(critics * batch, tokens, 3, parts.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=parts.causal)
            mixed_out = self.attention_out(mixed.transpose(1, 2).reshape(critics, batch, tokens, width))
            x = x + mixed_out if parts.residual else mixed_out
        out: Tensor = self.mlp_out(F.gelu(self.mlp_in(self.norm_mlp(x))))
        return x + out if parts.residual else out


class TransformerParts(NamedTuple):
    heads: int = 4
    residual: bool = True
    causal: bool = True
    attention: bool = True
    precision: Precision = "highest"


class TransformerBody(nn.Module):
    """Learned positions counted from the window's start, blocks, final normalisation."""

    def __init__(self, critics: int, width: int, layers: int, max_tokens: int, parts: TransformerParts) -> None:
        super().__init__()
        if width % parts.heads:
            raise ValueError(f"The critic's width ({width}) must be a multiple of its number of heads ({parts.heads}).")
        self.positions = nn.Parameter(torch.empty(critics, max_tokens, width))
        nn.init.normal_(self.positions, std=INIT_STD)
        residual_std = INIT_STD / math.sqrt(2 * layers)
        self.blocks = nn.ModuleList(Block(critics, width, residual_std, parts) for _ in range(layers))
        self.norm = StackedLayerNorm(critics, width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens + self.positions[:, None, : tokens.shape[2]]
        last = len(self.blocks) - 1
        for number, layer in enumerate(self.blocks):
            x = layer(x, first=1 if number == last else 0)  # nobody asks for the state's output
        out: Tensor = self.norm(x)
        return out


class RecurrentBody(nn.Module):
    """A GRU or LSTM over the tokens, with PyTorch's initialisation, and a final normalisation."""

    def __init__(self, critics: int, width: int, layers: int, kind: Literal["gru", "lstm"]) -> None:
        super().__init__()
        self.kind = kind
        self.layers = layers
        networks = [(nn.GRU if kind == "gru" else nn.LSTM)(width, width, layers) for _ in range(critics)]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.stack([parameter.detach() for parameter in stacked]))
            for stacked in zip(*(network.parameters() for network in networks), strict=True)
        )
        self.norm = StackedLayerNorm(critics, width)

    def forward(self, tokens: Tensor) -> Tensor:
        critics, batch, _, width = tokens.shape
        zeros = tokens.new_zeros(self.layers, batch, width)
        outputs = []
        for critic in range(critics):
            weights = [weight[critic] for weight in self.weights]
            settings = (weights, True, self.layers, 0.0, False, False, True)  # biases, no dropout, batch first
            if self.kind == "gru":
                outputs.append(torch.gru(tokens[critic], zeros, *settings)[0])
            else:
                outputs.append(torch.lstm(tokens[critic], (zeros, zeros), *settings)[0])
        out: Tensor = self.norm(torch.stack(outputs)[:, :, 1:])
        return out


Body = Literal["transformer", "gru", "lstm", "mlp"]


class PrefixCritic(nn.Module):
    """Values of all action prefixes of a window, for several critics at once.

    :param state_dim: length of the flattened observation
    :param action_dim: length of the flattened action
    :param critics: how many independent critics
    :param body: what reads the tokens: ``transformer``, ``gru`` or ``lstm``
    :param width: width of a token, and of a recurrent body's hidden state
    :param layers: number of blocks, or of recurrent layers
    :param heads: attention heads; must divide ``width``
    :param residual: whether a Transformer's blocks have residual branches
    :param causal: whether its attention is masked
    :param attention: whether it attends at all
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
        body: Body = "transformer",
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        residual: bool = True,
        causal: bool = True,
        attention: bool = True,
        max_length: int = 16,
        step_in_state: bool = False,
        step_in_actions: bool = False,
        episode_length: int = 1,
        precision: Precision = "highest",
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.step_in_state = step_in_state
        self.step_in_actions = step_in_actions
        self.episode_length = episode_length
        self.embed_state = StackedLinear(critics, state_dim + step_in_state, width)
        self.embed_action = StackedLinear(critics, action_dim + step_in_actions, width)
        self.body: nn.Module
        if body == "transformer":
            parts = TransformerParts(heads, residual, causal, attention, precision)
            self.body = TransformerBody(critics, width, layers, max_length + 1, parts)
        elif body in ("gru", "lstm"):
            self.body = RecurrentBody(critics, width, layers, body)
        else:
            raise ValueError(f"The critic's body must be one of {', '.join(get_args(Body))}; got {body!r}.")
        self.head = StackedLinear(critics, width, 1)  # small, as the embeddings are: always in full precision

    def forward(self, states: Tensor, actions: Tensor, steps: Tensor | None = None) -> Tensor:
        """
        :param states: the state that each window starts from  # [batch, state_dim]
        :param actions: # [batch, length, action_dim]
        :param steps: index of the window's first step within its episode  # [batch]
        :return: value of the prefix that ends with each action  # [critics, batch, length]
        """
        batch, length, _ = actions.shape
        states, actions = with_steps(self, states, actions, steps)
        state_tokens = self.embed_state(states).unsqueeze(2)  # [critics, batch, 1, width]
        action_tokens = self.embed_action(actions.reshape(batch * length, -1))
        action_tokens = action_tokens.view(-1, batch, length, action_tokens.shape[-1])
        outputs = self.body(torch.cat([state_tokens, action_tokens], dim=2))
        values: Tensor = self.head(outputs).squeeze(-1)
        return values


class ChunkCritic(nn.Module):
    """What a prefix critic is compared with: an MLP on the state and a chunk of actions of fixed length, laid flat.

    It has an output for every prefix, but each of them sees the whole chunk: also what has yet to come. A shorter
    window is filled up with zeros. Arguments as those of ``PrefixCritic``; ``width`` is that of the hidden layers.
    """

    def __init__(
        self,
        state_dim: int,
        action_dim: int,
        *,
        critics: int = 2,
        width: int = 256,
        layers: int = 2,
        max_length: int = 16,
        step_in_state: bool = False,
        step_in_actions: bool = False,
        episode_length: int = 1,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.step_in_state = step_in_state
        self.step_in_actions = step_in_actions
        self.episode_length = episode_length
        inputs = state_dim + step_in_state + max_length * (action_dim + step_in_actions)
        widths = [inputs, *[width] * layers]
        self.hidden = nn.ModuleList(
            StackedLinear(critics, a, b, std=math.sqrt(2.0 / a), bias=True) for a, b in itertools.pairwise(widths)
        )
        self.head = StackedLinear(critics, widths[-1], max_length, bias=True)

    def forward(self, states: Tensor, actions: Tensor, steps: Tensor | None = None) -> Tensor:
        """As that of ``PrefixCritic``."""
        batch, length, _ = actions.shape
        states, actions = with_steps(self, states, actions, steps)
        chunk = F.pad(actions, (0, 0, 0, self.max_length - length)).reshape(batch, -1)
        x = torch.cat([states, chunk], dim=-1)
        for layer in self.hidden:
            x = F.relu(layer(x))
        values: Tensor = self.head(x)
        return values[:, :, :length]


def make_critic(state_dim: int, action_dim: int, body: Body, transformer: dict[str, Any], **options: Any) -> Critic:
    """
    :param transformer: arguments that only a Transformer has a use for
    """
    if body == "mlp":
        return ChunkCritic(state_dim, action_dim, **options)
    return PrefixCritic(state_dim, action_dim, body=body, **transformer, **options)


Critic = PrefixCritic | ChunkCritic


def with_steps(critic: Critic, states: Tensor, actions: Tensor, steps: Tensor | None) -> tuple[Tensor, Tensor]:
    """Append the step index where the critic is to see it."""
    if steps is not None:
        if critic.step_in_actions:
            step_of_action = steps.unsqueeze(1) + torch.arange(actions.shape[1], device=steps.device)
            actions = append_step(actions, step_of_action, critic.episode_length)
        if critic.step_in_state:
            states = append_step(states, steps, critic.episode_length)
    return states, actions


def append_step(inputs: Tensor, steps: Tensor, episode_length: int) -> Tensor:
    """Append the step index, as a share of the episode, to the last dimension."""
    share = (steps.to(inputs.dtype) / episode_length).unsqueeze(-1)
    return torch.cat([inputs, share], dim=-1)
