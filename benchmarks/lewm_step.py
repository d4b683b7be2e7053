"""A LeWM training step without its regulariser, to see what share of it the regulariser takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from benchmarks.regularizer_peers import Cell


def lewm_step(device: torch.device, *, paper: bool, batch: int | None = None) -> tuple[Callable[[], None], Cell]:
    """One step (encode, predict, backward, AdamW) on random clips, and the size of its features.

    ``paper`` is LeWorldModel's released configuration in bfloat16, otherwise a small model in float32.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_worldmodel.wm.lewm import LeWM
        from stable_worldmodel.wm.lewm.module import MLP, Embedder, Predictor
    from transformers import ViTConfig, ViTModel

    pixels, patch, width, depth, heads = (224, 14, 192, 12, 3) if paper else (64, 16, 64, 3, 4)
    dim, slices, samples, hidden = (192, 1024, 128, 2048) if paper else (32, 256, 64, 256)
    predictor_depth, predictor_heads, head_dim, mlp = (6, 16, 64, 2048) if paper else (3, 4, 24, 192)
    samples = batch or samples
    frames, history, actions = 4, 3, 10
    vit = ViTConfig(
        image_size=pixels,
        patch_size=patch,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    model = LeWM(
        encoder=ViTModel(vit, add_pooling_layer=False),
        predictor=Predictor(
            num_frames=history,
            depth=predictor_depth,
            heads=predictor_heads,
            dim_head=head_dim,
            mlp_dim=mlp,
            input_dim=dim,
            hidden_dim=dim,
            dropout=0.1,
        ),
        action_encoder=Embedder(input_dim=actions, emb_dim=dim),
        projector=MLP(width, hidden, dim, norm_fn=torch.nn.BatchNorm1d),
        pred_proj=MLP(dim, hidden, dim, norm_fn=torch.nn.BatchNorm1d),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    clips = torch.randn(samples, frames, 3, pixels, pixels, device=device)
    taken = torch.randn(samples, frames, actions, device=device)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=paper):
            encoded = model.encode({"pixels": clips, "action": taken})
            features = encoded["emb"]
            predicted = model.predict(features[:, :history], encoded["act_emb"][:, :history])
            loss = (predicted - features[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step, Cell(frames, samples, dim, slices)
