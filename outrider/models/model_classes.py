"""Import classes of transformers without dependencies that nothing here uses.

These are scikit-learn and scipy's optimisers (for losses and a kind of generation), torch's distributed tensors and its
compiler: a third of the CPU time that a process needs before it can load a model.
"""

from transformers import utils
from transformers.utils import import_utils

from outrider.models.uncompiled import uncompiled

for _name in ("is_scipy_available", "is_sklearn_available", "is_torch_distributed_available"):
    for _module in (utils, import_utils):
        setattr(_module, _name, lambda: False)

with uncompiled():
    from transformers import AttentionInterface, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

__all__ = ["AttentionInterface", "AutoModelForCausalLM", "GenerationConfig", "PreTrainedModel"]
