"""Classes of transformers, without what their import brings along and nothing here uses.

That is scikit-learn and scipy's optimisers (for losses and a kind of generation), torch's distributed tensors and its
compiler: a third of what a process of a model needs processor time for before it can load one.
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
