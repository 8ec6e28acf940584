"""Classes of transformers whose import would bring scikit-learn and scipy along wherever those are installed.

Losses and one kind of assisted generation use them, which nothing here does; they are a quarter of what a process of a
model needs processor time for before it can load one.
"""

from transformers import utils
from transformers.utils import import_utils

for _name in ("is_scipy_available", "is_sklearn_available"):
    for _module in (utils, import_utils):
        setattr(_module, _name, lambda: False)

from transformers import AttentionInterface, AutoModelForCausalLM, GenerationConfig, PreTrainedModel  # noqa: E402

__all__ = ["AttentionInterface", "AutoModelForCausalLM", "GenerationConfig", "PreTrainedModel"]
