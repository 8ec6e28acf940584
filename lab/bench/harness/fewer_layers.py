"""A draft model of adjustable quality without training: the target without some of its layers.

As in draft-and-verify decoding (Zhang et al., 2023), but as a separate model: a device has no target whose layers it
could skip. The fewer layers are left out, the more of its tokens are accepted.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from outrider.contracts.errors import ParameterError
from outrider.models.embedded import outrider_home
from outrider.models.loading import load_target, load_target_facts


def without_layers(target: str, skipped: Collection[int]) -> Path:
    """Return the folder of such a model in the user's cache; create it if needed. Layers are counted from 0.

    Raises:
        ParameterError: the target has no such layer, or none would be left.
    """
    left_out, facts = sorted(set(skipped)), load_target_facts(target)
    folder = outrider_home() / "bench" / f"{facts.name}-{facts.model_hash[:8]}-without-{'-'.join(map(str, left_out))}"
    if folder.is_dir():
        return folder
    model: Any = load_target(target, dtype="bfloat16", device="cpu").model
    layers = list(model.model.layers)
    if not left_out or not set(left_out) < set(range(len(layers))):
        raise ParameterError("skipped layers", f"some, not all, of 0..{len(layers) - 1}", left_out)
    kept = [layer for index, layer in enumerate(layers) if index not in left_out]
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [kind for i, kind in enumerate(model.config.layer_types) if i not in left_out]
    partial = folder.with_name(f"partial-{folder.name}")  # so that it appears complete or not at all
    model.save_pretrained(partial)
    facts.tokenizer.save_pretrained(partial)
    partial.rename(folder)
    return folder
