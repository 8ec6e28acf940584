"""Grammars over a model's own tokens."""

from copy import deepcopy

from outrider.grammar.compiling import Grammars
from outrider.models.loading import ModelFacts
from outrider.text.tokens import backend_of


def grammars_of(facts: ModelFacts) -> Grammars:
    """Grammars whose masks are over the model's vocabulary, and whose ends are what ends its responses."""
    backend = deepcopy(backend_of(facts.tokenizer))
    backend.no_truncation()
    backend.no_padding()
    return Grammars.of_tokenizer(backend.to_str(), facts.eos_token_ids, facts.vocab_size)
