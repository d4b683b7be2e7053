"""The predictor rolled out for many candidate plans: the terminal latent only, each thing computed once.

LeWM's own rollout calls the predictor on the whole context at every step. Here

- the modulations of an action (two thirds of a block's parameters act on actions alone) are computed once per action,
  not once per window that contains it;
- while the context grows, keys and values of earlier tokens are kept: a step costs one token;
- once the window slides, positions shift and it is computed anew, but the last block and the projector run on its last
  token only, which is all that is used.

Tokens lie on the first axis, plans on the second, so that no step copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

_Cache = tuple[list[Tensor], list[Tensor]]
#: Plans per block on a CPU: their activations stay in the second-level cache.
CPU_BLOCK = 512
ACCELERATOR_BLOCK = 1 << 16


def terminal_latent(model: LeWM, start: Tensor, actions: Tensor) -> Tensor:
    """Latent after the last action: ẑ_{t+1} = predictor(ẑ_{t−h+1..t}, a_{t−h+1..t}), h at most the model's history.

    Parameters
    ----------
    model
        LeWM in evaluation mode.
    start
        One context frame per problem, (B, D).
    actions
        Candidate plans (B, S, T, frameskip · A).

    Returns
    -------
    Tensor
        (B, S, D).

    References
    ----------
    LeWorldModel, planning; equals the last step of ``LeWM.rollout`` in stable-worldmodel 0.1.1.
    """
    problems, samples = actions.shape[:2]
    plans = actions.flatten(0, 1)
    starts = start.unsqueeze(1).expand(-1, samples, -1).reshape(problems * samples, -1)
    size = CPU_BLOCK if actions.device.type == "cpu" else ACCELERATOR_BLOCK
    blocks = zip(starts.split(size), plans.split(size), strict=True)
    parts = [_roll(model, latent, plan) for latent, plan in blocks]
    return torch.cat(parts).reshape(problems, samples, -1)


def _roll(model: Any, start: Tensor, plans: Tensor) -> Tensor:
    predictor = model.predictor
    transformer = predictor.transformer
    layers = list(transformer.layers)
    # (T, P, D): tokens first.
    condition = F.silu(transformer.cond_proj(_embed(model.action_encoder, plans.transpose(0, 1))))
    modulations = [_modulate(layer, condition) for layer in layers]
    history, steps = predictor.num_frames, plans.shape[1]
    positions = predictor.pos_embedding[0]
    latents = [start]
    caches: list[_Cache] = [([], []) for _ in layers]
    for step in range(steps):
        first = max(0, step + 1 - history)
        # A window that starts at the first frame only gains a token; one that slides shifts every position.
        fresh = [step] if first == 0 else list(range(first, step + 1))
        hidden = transformer.input_proj(torch.stack([latents[index] + positions[index - first] for index in fresh]))
        for depth, layer in enumerate(layers):
            parts = [part[fresh[0] : step + 1] for part in modulations[depth]]
            past = caches[depth] if first == 0 else ([], [])
            hidden, caches[depth] = _block(layer, hidden, parts, past, last_only=layer is layers[-1])
        latents.append(model.pred_proj(transformer.output_proj(transformer.norm(hidden[-1]))))
    return latents[-1]


def _embed(encoder: Any, actions: Tensor) -> Tensor:
    """Embedder without its detour through a convolution of kernel size 1, and in the weights' own precision."""
    smooth = encoder.patch_embed
    embedded: Tensor = encoder.embed(F.linear(actions.to(smooth.weight.dtype), smooth.weight[:, :, 0], smooth.bias))
    return embedded


def _modulate(layer: Any, condition: Tensor) -> list[Tensor]:
    """Shift, 1 + scale and gate of attention and of the MLP for every action, (T, P, d) each."""
    linear = layer.adaLN_modulation[1]
    width = linear.weight.shape[1]
    offset = torch.zeros_like(linear.bias)
    offset[width : 2 * width] = offset[4 * width : 5 * width] = 1.0
    return list(F.linear(condition, linear.weight, linear.bias + offset).chunk(6, dim=-1))


def _block(layer: Any, hidden: Tensor, parts: list[Tensor], past: _Cache, last_only: bool) -> tuple[Tensor, _Cache]:
    """One conditional block on the fresh tokens (m, P, d); also keys and values per token, the past ones included."""
    shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = parts
    attention = layer.attn
    inner = attention.norm(torch.addcmul(shift, layer.norm1(hidden), scale))
    if last_only and len(hidden) > 1:
        # Keys and values of every token, the query of the last alone.
        weight = attention.to_qkv.weight
        width = weight.shape[0] // 3
        query = F.linear(inner[-1:], weight[:width])
        key, value = F.linear(inner, weight[width:]).chunk(2, dim=-1)
        hidden, gate = hidden[-1:], gate[-1:]
        shift_mlp, scale_mlp, gate_mlp = shift_mlp[-1:], scale_mlp[-1:], gate_mlp[-1:]
    else:
        query, key, value = attention.to_qkv(inner).chunk(3, dim=-1)
    split = (attention.heads, -1)
    keys, values = ([*old, *new.unflatten(-1, split).unbind(0)] for old, new in zip(past, (key, value), strict=True))
    attended = _attend(query.unflatten(-1, split), keys, values, attention.scale)
    hidden = torch.addcmul(hidden, gate, attention.to_out(attended))
    hidden = torch.addcmul(hidden, gate_mlp, layer.mlp(torch.addcmul(shift_mlp, layer.norm2(hidden), scale_mlp)))
    return hidden, (keys, values)


def _attend(query: Tensor, keys: list[Tensor], values: list[Tensor], scale: float) -> Tensor:
    """Causal attention of the last tokens, query (q, P, heads, width), over all tokens: (q, P, heads · width)."""
    outputs = []
    for index, asked in enumerate(query.unbind(0)):
        seen = len(keys) - len(query) + index + 1
        if seen == 1:
            outputs.append(values[0].flatten(-2))
            continue
        scores = torch.stack([(asked * key).sum(dim=-1, keepdim=True) for key in keys[:seen]])
        weights = (scores * scale).softmax(dim=0)
        mixed = weights[0] * values[0]
        for weight, value in zip(weights[1:], values[1:seen], strict=True):
            mixed = torch.addcmul(mixed, weight, value)
        outputs.append(mixed.flatten(-2))
    return torch.stack(outputs)
