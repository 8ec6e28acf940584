"""Export of a distilled drafter as a model folder, for servers that do not read drafter files.

Our drafter's logits are ``(h @ projection) @ head.T``; with ``head @ projection.T`` as an untied output head it is an
ordinary model of the target's architecture.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.models.drafter_model import load_drafter_from_target_dir


def export_drafter(file: Path, target_folder: Path, out: Path) -> Path:
    """Write the drafter of ``file`` as a Hugging Face folder ``out`` in float32, with the target's tokenizer."""
    drafter: Any = load_drafter_from_target_dir(file, target_folder, dtype=torch.float32, device="cpu", whole_head=True)
    projection, head = drafter.lm_head
    alone: Any = AutoModelForCausalLM.from_config(drafter.config, dtype=torch.float32)
    alone.base_model.load_state_dict(drafter.base_model.state_dict())
    with torch.no_grad():
        alone.lm_head.weight.copy_(head.weight @ projection.weight)
    alone.save_pretrained(out)
    AutoTokenizer.from_pretrained(target_folder, local_files_only=True).save_pretrained(out)
    return out
