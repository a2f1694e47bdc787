"""The actor: a Gaussian squashed by tanh, with separate networks for its mean and its deviation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsac.agent.critic import append_step

EntropyForm = Literal["gaussian", "squashed"]
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class ActionSample(NamedTuple):
    actions: Tensor  # [batch, chunk_length * action_dim], in [-1, 1]
    entropy: Tensor  # what the actor's loss rewards  # [batch]
    log_prob: Tensor  # what the temperature is learned from  # [batch]


def mlp(
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    activation: type[nn.Module],
    layer_norm: bool,
    output_scale: float,
) -> nn.Sequential:
    """Linear, normalisation, activation for every hidden layer. Kaiming weights, the last layer's scaled; no biases."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(inputs, width))
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(activation())
        inputs = width
    layers.append(nn.Linear(inputs, outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in")
            nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layers[-1].weight.mul_(output_scale)  # type: ignore[operator]
    return nn.Sequential(*layers)


def standard_deviation(x: Tensor) -> Tensor:
    """exp(x) up to 1, logarithmic growth beyond: a network output cannot make the exploration explode.

    The 1e-6 is that of gSDE's code, where the form comes from, and so of the published numbers.
    """
    x = x.clamp(LOG_STD_MIN, LOG_STD_MAX)
    below, above = x.clamp(max=0.0), x.clamp(min=0.0) + 1e-6
    return torch.where(x <= 0.0, below.exp(), 1.0 + above.log1p())


class Actor(nn.Module):
    """
    :param state_dim: length of the flattened observation
    :param action_dim: length of the flattened action
    :param chunk_length: how many actions, to be executed one after the other, come out at once
    :param mean_layers: widths of the hidden layers of the mean's network
    :param std_layers: widths of the hidden layers of the deviation's network
    :param activation: class of the nonlinearity
    :param layer_norm: normalise every hidden layer before its nonlinearity
    :param output_scale: of the initial weights of both last layers: at 1, initial means and deviations are spread
        widely over the states; near 0, the initial policy is a standard Gaussian squashed by tanh everywhere
    :param entropy: whose entropy and log-probability are meant: of the ``gaussian`` before tanh, whose entropy has a
        closed form that does not depend on the mean, or of the ``squashed`` action, whose entropy is estimated by the
        sampled action's log-probability, as in SAC
    :param step_input: append the (scaled) step index to the state
    :param episode_length: what step indices are divided by
    """

    def __init__(
        self,
        state_dim: int,
        action_dim: int,
        *,
        chunk_length: int = 1,
        mean_layers: Sequence[int] = (256, 256),
        std_layers: Sequence[int] = (256, 256),
        activation: type[nn.Module] = nn.ReLU,
        layer_norm: bool = True,
        output_scale: float = 1.0,
        entropy: EntropyForm = "gaussian",
        step_input: bool = False,
        episode_length: int = 1,
    ) -> None:
        super().__init__()
        self.entropy = entropy
        self.step_input = step_input
        self.episode_length = episode_length
        inputs = state_dim + step_input
        outputs = chunk_length * action_dim
        self.mean = mlp(inputs, mean_layers, outputs, activation, layer_norm, output_scale)
        self.std = mlp(inputs, std_layers, outputs, activation, layer_norm, output_scale)

    def _inputs(self, states: Tensor, steps: Tensor | None) -> Tensor:
        if self.step_input:
            assert steps is not None, "this actor needs the step index of every state"
            return append_step(states, steps, self.episode_length)
        return states

    def best(self, states: Tensor, steps: Tensor | None = None) -> Tensor:
        """The deterministic action: tanh of the mean."""
        return torch.tanh(self.mean(self._inputs(states, steps)))

    def sample(self, states: Tensor, steps: Tensor | None = None, noise: Tensor | None = None) -> ActionSample:
        """A reparametrised action, with its entropy and log-probability.

        :param noise: standard normal numbers to use instead of fresh ones  # [batch, chunk_length * action_dim]
        """
        inputs = self._inputs(states, steps)
        mean, std = self.mean(inputs), standard_deviation(self.std(inputs))
        if noise is None:
            noise = torch.randn_like(mean)
        raw = mean + std * noise
        log_std = std.log()
        log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)
        if self.entropy == "gaussian":
            entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=-1)
        else:
            # log(1 - tanh(raw)^2), written so that it does not overflow
            log_prob = log_prob - (2.0 * (math.log(2.0) - raw - F.softplus(-2.0 * raw))).sum(dim=-1)
            entropy = -log_prob
        return ActionSample(torch.tanh(raw), entropy, log_prob)
