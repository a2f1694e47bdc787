"""The Gated Transformer-XL (Parisotto et al., 2020): attention over a memory of the past, gates for residuals."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Memory(NamedTuple):
    """What every layer read in the last steps, oldest first."""

    content: Tensor  # [batch, layers, length, width]
    own: Tensor  # how many of them belong to the running episode  # [batch]


class Gate(nn.Module):
    """A GRU cell in the place of a residual connection. Its bias lets the input through at first."""

    def __init__(self, width: int, bias: float = 2.0) -> None:
        super().__init__()
        self.of_update = nn.Linear(width, 3 * width, bias=False)
        self.of_input = nn.Linear(width, 2 * width, bias=False)
        self.of_reset = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.full((width,), bias))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """:param x: what came in; :param y: what the layer made of it"""
        y_reset, y_update, y_candidate = self.of_update(y).chunk(3, dim=-1)
        x_reset, x_update = self.of_input(x).chunk(2, dim=-1)
        reset = torch.sigmoid(y_reset + x_reset)
        update = torch.sigmoid(y_update + x_update - self.bias)
        candidate = torch.tanh(y_candidate + self.of_reset(reset * x))
        return (1.0 - update) * x + update * candidate


class RelativeAttention(nn.Module):
    """Multi-head attention whose scores depend on contents and on distances (Dai et al., 2019)."""

    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.queries = nn.Linear(width, heads * size, bias=False)
        self.keys_values = nn.Linear(width, 2 * heads * size, bias=False)
        self.distances = nn.Linear(width, heads * size, bias=False)
        self.out = nn.Linear(heads * size, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, size))
        self.distance_bias = nn.Parameter(torch.zeros(heads, size))

    def forward(self, x: Tensor, context: Tensor, encoded: Tensor, distance: Tensor, seen: Tensor) -> Tensor:
        """
        :param x: # [batch, time, width]
        :param context: the memory, then x  # [batch, memory + time, width]
        :param encoded: an encoding of every distance  # [distances, width]
        :param distance: from every entry of x to every entry of the context  # [time, memory + time]
        :param seen: bool  # [batch, time, memory + time]
        """
        batch, time, _ = x.shape
        q = self.queries(x).view(batch, time, self.heads, self.size)
        k, v = self.keys_values(context).view(batch, -1, 2, self.heads, self.size).unbind(dim=2)
        r = self.distances(encoded).view(-1, self.heads, self.size)
        by_content = torch.einsum("bthd,bchd->bhtc", q + self.content_bias, k)
        by_distance = torch.einsum("bthd,rhd->bhtr", q + self.distance_bias, r)
        by_distance = by_distance.gather(3, distance.expand(batch, self.heads, -1, -1))
        scores = (by_content + by_distance) * self.size**-0.5
        weights = scores.masked_fill(~seen.unsqueeze(1), -math.inf).softmax(dim=-1)
        mixed = torch.einsum("bhtc,bchd->bthd", weights, v)
        out: Tensor = self.out(mixed.reshape(batch, time, -1))
        return out


class Layer(nn.Module):
    """Normalisation first, so that an untouched path leads from the input to the output, and a gate after each part."""

    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = RelativeAttention(width, heads, size)
        self.gate_attention = Gate(width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.gate_mlp = Gate(width)

    def forward(self, x: Tensor, remembered: Tensor, encoded: Tensor, distance: Tensor, seen: Tensor) -> Tensor:
        context = self.norm_attention(torch.cat([remembered, x], dim=1))
        attended = self.attention(context[:, remembered.shape[1] :], context, encoded, distance, seen)
        x = self.gate_attention(x, F.relu(attended))
        out: Tensor = self.gate_mlp(x, self.mlp(self.norm_mlp(x)))
        return out


class GatedTransformer(nn.Module):
    """
    :param inputs: length of an observation
    :param layers: number of layers
    :param heads: attention heads
    :param size: of a head; the width is ``heads * size``
    :param memory_length: steps that are remembered
    """

    def __init__(self, inputs: int, layers: int = 4, heads: int = 4, size: int = 16, memory_length: int = 64) -> None:
        super().__init__()
        self.width = heads * size
        self.memory_length = memory_length
        self.embed = nn.Linear(inputs, self.width)
        self.layers = nn.ModuleList(Layer(self.width, heads, size) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def empty_memory(self, batch: int) -> Memory:
        device = self.embed.weight.device
        content = torch.zeros(batch, len(self.layers), self.memory_length, self.width, device=device)
        return Memory(content, torch.zeros(batch, dtype=torch.int64, device=device))

    def forward(self, observations: Tensor, memory: Memory, starts: Tensor) -> tuple[Tensor, Memory]:
        """
        :param observations: # [batch, time, inputs]
        :param memory: of the steps before
        :param starts: bool: a new episode begins with this step; it sees nothing of the steps before  # [batch, time]
        :return: outputs  # [batch, time, width], and the memory for the steps after
        """
        time, length = observations.shape[1], self.memory_length
        distance, seen = self._seen(time, memory.own, starts)
        encoded = encode_distances(length + time, self.width).to(observations)
        x = self.embed(observations)
        contents = []
        for number, layer in enumerate(self.layers):
            remembered = memory.content[:, number]
            contents.append(torch.cat([remembered, x.detach()], dim=1)[:, time:])  # no gradient into the past
            x = layer(x, remembered, encoded, distance, seen)
        since_start = (starts.flip(1).cumsum(dim=1) == 0).sum(dim=1) + 1  # steps from the last start on
        count = torch.where(starts.any(dim=1), since_start, memory.own + time).clamp(max=length)
        return x, Memory(torch.stack(contents, dim=1), count)

    def _seen(self, time: int, count: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Distances, and who sees whom: what is not later, not further than the memory reaches, of one episode."""
        length, device = self.memory_length, starts.device
        own = torch.arange(time, device=device)
        place = torch.cat([torch.arange(-length, 0, device=device), own])
        distance = own.unsqueeze(1) - place  # [time, memory + time]
        episode = starts.cumsum(dim=1)  # [batch, time]
        valid = place[:length] >= -count.unsqueeze(1)  # [batch, memory]
        of_memory = (episode == 0).unsqueeze(2) & valid.unsqueeze(1)
        of_window = episode.unsqueeze(2) == episode.unsqueeze(1)
        seen = torch.cat([of_memory, of_window], dim=2) & (distance >= 0) & (distance <= length)
        return distance.clamp(min=0), seen


def encode_distances(count: int, width: int) -> Tensor:
    """Sines and cosines  # [count, width]"""
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
