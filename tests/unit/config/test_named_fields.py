"""In how few files of the product each setting is named, so that a new one needs no plumbing.

Counted are attributes (``x.field``) and keyword arguments (``field=``), by file. Names of one word (``count``,
``policy``) are those of many other things, so only names of two words and more are counted. ``SHARED`` are those of
them that others' objects have too: these cannot be told apart by name, and the test bounds them as they are.
"""

import ast
from collections import defaultdict

from outrider.config.schema import Config
from tests.budgets import ROOT, leaves, product_files

MOST_FILES = 4
SHARED = {  # may only shrink, in names and in numbers
    "max_context_tokens": 26,  # of a model card, too
    "tokens_per_s": 24,  # of an SLO class and of a promise
    "model_hash": 13,  # of any model's files
    "prefill_chunk_tokens": 14,  # of an engine's limits, which each engine obeys, and of a batch's
    "num_cpus": 8,  # Ray's argument
    "num_gpus": 8,  # likewise
    "k_max": 9,  # of a request's limits and of a round's
    "per_up": 8,  # of every link, an emulated one or not
    "per_down": 8,  # likewise
    "max_output_tokens": 6,  # OpenAI's field of a response, too
    "tensor_parallel_size": 6,  # vLLM's argument, and an option of ``outrider profile``
    "keys_file": 6,  # of ``AuthSettings`` and of an error
    "first_token_s": 6,  # of a request
    "vllm_options": 5,  # of ``VerifierSpec``, and an option of ``outrider profile``
}


def named() -> dict[str, int]:
    """Number of files by setting."""
    settings = {name for name in leaves(Config) if "_" in name}
    files = defaultdict[str, set[str]](set)
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.keyword) else None
            if name in settings:
                files[name].add(str(path.relative_to(ROOT)))
    return {name: len(found) for name, found in files.items()}


def test_a_setting_is_named_in_few_files() -> None:
    over = {name: count for name, count in named().items() if count > MOST_FILES and name not in SHARED}
    assert over == {}, f"pass the section whole, so that at most {MOST_FILES} files name a setting"


def test_shared_names_only_shrink() -> None:
    found = named()
    assert {name: (found[name], most) for name, most in SHARED.items() if found[name] > most} == {}
    assert [name for name in SHARED if found[name] <= MOST_FILES] == [], "take them out of SHARED"
