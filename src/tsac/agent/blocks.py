"""A Transformer block for a few tokens, forwards and backwards by hand.

Automatic differentiation of the plain formulation spends most of its time on everything but the matrix products: it
scales activations where scaling a weight does, keeps what it will not need, and its softmax is slow over rows as short
as a window. The arithmetic here is that of the plain formulation, up to rounding; ``tests/agent/test_blocks.py``
compares the two.

Shapes: [critics, batch * tokens, width] for activations, [critics, outputs, inputs] for weights.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from tsac.agent import engine

Precision = Literal["highest", "bf16"]
EPSILON = 1e-5  # of the normalisations
OUTWEIGHED = 80.0  # a score so far above a query's own takes all the weight; exp of more would overflow
aten: Any = torch.ops.aten


def block(
    x: Tensor, norm_attention: Tensor, queries_keys_values: Tensor, attention_out: Tensor, norm_mlp: Tensor,
    mlp_in: Tensor, mlp_out: Tensor, heads: int, first: int, precision: Precision,
) -> Tensor:  # fmt: skip
    """Pre-norm causal self-attention and MLP, both with residuals.

    ``bf16`` rounds the factors of the large products, and what they give, to bfloat16; attention, normalisation and
    the residual stream stay in single precision.

    :param x: # [critics, batch, tokens, width]
    :param first: the outputs of earlier tokens are not needed and left out
    """
    out: Tensor = _Block.apply(
        x, norm_attention, queries_keys_values, attention_out, norm_mlp, mlp_in, mlp_out, heads, first, precision
    )  # type: ignore[no-untyped-call]
    return out


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm_attention: Tensor, qkv: Tensor, attention_out: Tensor, norm_mlp: Tensor,
        mlp_in: Tensor, mlp_out: Tensor, heads: int, first: int, precision: Precision,
    ) -> Tensor:  # fmt: skip
        critics, batch, tokens, width = x.shape
        low = torch.bfloat16 if precision == "bf16" else x.dtype

        # The norms' scales are folded into the weights that follow them.
        qkv_scaled, in_scaled = (qkv * norm_attention.unsqueeze(1)).to(low), (mlp_in * norm_mlp.unsqueeze(1)).to(low)
        attention_out, mlp_out = attention_out.to(low), mlp_out.to(low)

        normed, mean, rstd = torch.native_layer_norm(x, [width], None, None, EPSILON)
        normed = normed.view(critics, batch * tokens, width).to(low)
        parts = _heads(engine.products(normed, qkv_scaled.mT).view(critics * batch, tokens, 3, heads, -1))
        weights, mixed = _attend(parts, first)
        mixed = mixed.view(critics, -1, width)
        middle = _add_product(x[:, :, first:].reshape(critics, -1, width), mixed, attention_out)

        normed_mlp, mean_mlp, rstd_mlp = torch.native_layer_norm(middle, [width], None, None, EPSILON)
        normed_mlp = normed_mlp.to(low)
        hidden = engine.products(normed_mlp, in_scaled.mT)
        active = torch.nn.functional.gelu(hidden)
        out = _add_product(middle, active, mlp_out)

        if any(ctx.needs_input_grad):
            ctx.first = first
            ctx.save_for_backward(
                x, mean, rstd, normed, parts, weights, mixed, middle, mean_mlp, rstd_mlp, normed_mlp, hidden, active,
                norm_attention, qkv, norm_mlp, mlp_in, qkv_scaled, in_scaled, attention_out, mlp_out,
            )  # fmt: skip
        return out.view(critics, batch, tokens - first, width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        (
            x, mean, rstd, normed, parts, weights, mixed, middle, mean_mlp, rstd_mlp, normed_mlp, hidden, active,
            norm_attention, qkv, norm_mlp, mlp_in, qkv_scaled, in_scaled, attention_out, mlp_out,
        ) = ctx.saved_tensors  # fmt: skip
        critics, batch, _, width = x.shape
        low = normed.dtype
        of_weights = any(ctx.needs_input_grad[1:])
        given: list[Tensor | None] = [None] * 6
        gradient = gradient.reshape(critics, -1, width)

        # The MLP.
        lowered = gradient.to(low)
        of_hidden = engine.products(lowered, mlp_out)
        if of_weights:
            given[5] = _of_weight(lowered, active, x.dtype)
        aten.gelu_backward.grad_input(of_hidden, hidden, grad_input=of_hidden)
        of_normed = engine.products(of_hidden, in_scaled).to(x.dtype)
        if of_weights:
            given[4], given[3] = _unfolded(_of_weight(of_hidden, normed_mlp, x.dtype), mlp_in, norm_mlp)
        gradient = gradient + _of_normalised(of_normed, middle, mean_mlp, rstd_mlp)

        # The attention.
        lowered = gradient.to(low)
        of_mixed = engine.products(lowered, attention_out)
        if of_weights:
            given[2] = _of_weight(lowered, mixed, x.dtype)
        of_qkv = _attend_backward(of_mixed, parts, weights, ctx.first).view(critics, -1, 3 * width)
        of_normed = engine.products(of_qkv, qkv_scaled).to(x.dtype)
        if of_weights:
            given[1], given[0] = _unfolded(_of_weight(of_qkv, normed, x.dtype), qkv, norm_attention)
        of_x = _of_normalised(of_normed.view_as(x), x, mean, rstd)
        of_x[:, :, ctx.first :] += gradient.view(critics, batch, -1, width)
        return (of_x, *given, None, None, None)


# ------------------------------------------------------------------------------------------ attention
#
# Small products over strided views are fast in bfloat16 and slow in single precision, where copying first pays. So
# queries, keys and values are [sequences, tokens, 3, heads, size] in bfloat16, as the large product left them, and
# [3, sequences, heads, tokens, size] otherwise; the functions see them as [3, heads, sequences, tokens, size] views.


def _heads(qkv: Tensor) -> Tensor:
    if qkv.dtype == torch.bfloat16:
        return qkv
    return qkv.permute(2, 0, 3, 1, 4).contiguous()


def _attend(parts: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Attention weights, and the values mixed with them  # [sequences, tokens - first, heads * size]"""
    if parts.dtype == torch.bfloat16:
        sequences, tokens, _, heads, size = parts.shape
        scores = parts.new_empty(heads, sequences, tokens - first, tokens)
        mixed = parts.new_empty(sequences, tokens - first, heads, size)
        for head in range(heads):
            torch.bmm(parts[:, first:, 0, head], parts[:, :, 1, head].transpose(1, 2), out=scores[head])
        weights = _causal_softmax(scores.float(), size).to(parts.dtype)
        for head in range(heads):
            torch.bmm(weights[head], parts[:, :, 2, head], out=mixed[:, :, head])
        return weights, mixed
    _, sequences, heads, tokens, size = parts.shape
    q, k, v = parts.view(3, sequences * heads, tokens, size)
    weights = _causal_softmax(torch.bmm(q[:, first:], k.transpose(1, 2)), size)
    mixed = torch.bmm(weights, v).view(sequences, heads, tokens - first, size)
    return weights, mixed.transpose(1, 2).contiguous()


def _attend_backward(of_mixed: Tensor, parts: Tensor, weights: Tensor, first: int) -> Tensor:
    """Gradient of queries, keys and values  # [sequences, tokens, 3, heads, size]"""
    if parts.dtype == torch.bfloat16:
        sequences, tokens, _, heads, size = parts.shape
        of_mixed = of_mixed.view(sequences, tokens - first, heads, size)
        of_weights = torch.empty_like(weights)
        for head in range(heads):
            torch.bmm(of_mixed[:, :, head], parts[:, :, 2, head].transpose(1, 2), out=of_weights[head])
        of_scores = _softmax_backward(of_weights.float(), weights.float(), size).to(parts.dtype)
        of_parts = torch.empty_like(parts)
        of_parts[:, :first, 0] = 0.0
        for head in range(heads):
            torch.bmm(of_scores[head], parts[:, :, 1, head], out=of_parts[:, first:, 0, head])
            torch.bmm(of_scores[head].transpose(1, 2), parts[:, first:, 0, head], out=of_parts[:, :, 1, head])
            torch.bmm(weights[head].transpose(1, 2), of_mixed[:, :, head], out=of_parts[:, :, 2, head])
        return of_parts
    _, sequences, heads, tokens, size = parts.shape
    q, k, v = parts.view(3, sequences * heads, tokens, size)
    of_mixed = of_mixed.view(sequences, tokens - first, heads, size).transpose(1, 2).reshape(-1, tokens - first, size)
    of_scores = _softmax_backward(torch.bmm(of_mixed, v.transpose(1, 2)), weights, size)
    of_parts = torch.empty_like(parts)
    of_q, of_k, of_v = of_parts.view(3, sequences * heads, tokens, size)
    of_q[:, :first] = 0.0
    of_q[:, first:] = torch.bmm(of_scores, k)
    torch.bmm(of_scores.transpose(1, 2), q[:, first:], out=of_k)
    torch.bmm(weights.transpose(1, 2), of_mixed, out=of_v)
    return of_parts.permute(1, 3, 0, 2, 4).contiguous()


def _causal_softmax(scores: Tensor, size: int) -> Tensor:
    """A query is at the same place as one of the last keys, and sees those up to it. Works in the scores' memory.

    Scores are taken relative to that of the query's own place, which it always sees.
    """
    length, tokens = scores.shape[-2:]
    own = scores.diagonal(offset=tokens - length, dim1=-2, dim2=-1).unsqueeze(-1).clone()
    seen = scores.new_ones(length, tokens).tril(tokens - length)
    weights = scores.sub_(own).mul_(size**-0.5).clamp_(max=OUTWEIGHED).exp_().mul_(seen)
    return weights.div_(weights.sum(dim=-1, keepdim=True))


def _softmax_backward(of_weights: Tensor, weights: Tensor, size: int) -> Tensor:
    of_weights.mul_(weights)
    of_weights.addcmul_(weights, of_weights.sum(dim=-1, keepdim=True), value=-1.0)
    return of_weights.mul_(size**-0.5)


# ------------------------------------------------------------------------------------------ products and norms


def _add_product(x: Tensor, factor: Tensor, weight: Tensor) -> Tensor:
    if factor.dtype == x.dtype:
        return engine.products(factor, weight.mT, add=x)
    return x + engine.products(factor, weight.mT)


def _of_weight(of_output: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return engine.products(of_output.mT, inputs).to(dtype)


def _unfolded(of_scaled: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a weight and of the norm's scale that was folded into it."""
    return of_scaled * scale.unsqueeze(1), (of_scaled * weight).sum(dim=1)


def _of_normalised(gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    of_x: Tensor = aten.native_layer_norm_backward(
        gradient, x, [x.shape[-1]], mean, rstd, None, None, [True, False, False]
    )[0]
    return of_x
