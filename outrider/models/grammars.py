"""Grammars over a model's own tokenizer."""

from copy import deepcopy

from outrider.grammar.compiling import Grammars
from outrider.models.loading import ModelFacts
from outrider.text.tokens import backend_of


def grammars_of(facts: ModelFacts) -> Grammars:
    """Return grammars with masks over the model's vocabulary, and its end tokens."""
    backend = deepcopy(backend_of(facts.tokenizer))
    backend.no_truncation()
    backend.no_padding()
    return Grammars.of_tokenizer(backend.to_str(), facts.eos_token_ids, facts.vocab_size)
