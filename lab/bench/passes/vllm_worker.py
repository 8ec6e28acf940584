"""Main program of vLLM's process: see ``vllm_step``. What vLLM prints goes to standard error."""

import json
import os
import sys

from lab.bench.passes.shapes import PassShape, Pool
from lab.bench.passes.timing import pass_seconds
from lab.bench.passes.vllm_step import StepSettings
from outrider.contracts.errors import OutriderError
from outrider.engines.forward_model import BlockCopy, Segment
from outrider.engines.torch.model import configured_kv_bytes_per_token
from outrider.engines.vllm.model import VllmForward
from outrider.engines.vllm.settings import VllmSettings
from outrider.models.folders import resolve_folder
from outrider.models.loading import load_target_facts, torch_dtype
from outrider.models.target_folder import read_config

_PREFILL_TOKENS = 256


def main() -> None:
    """Answer requests until the input ends."""
    told = json.loads(sys.argv[1])
    settings = StepSettings(**{**told, "pool": Pool(**told["pool"])})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(content: object) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        model = _started(settings)
    except OutriderError as error:
        answer(str(error))
        return
    answer([])
    for line in sys.stdin:
        asked = json.loads(line)
        segments = settings.pool.segments(PassShape(asked["rows"], asked["generations"]), asked["context_tokens"])
        answer(pass_seconds(model, segments, asked["passes"], settings.threads))
    model.close()


def _started(settings: StepSettings) -> VllmForward:
    """Start with KV in all sequences: one is computed and copied to the others."""
    pool, folder, facts = settings.pool, resolve_folder(settings.target), load_target_facts(settings.target)
    token_bytes = configured_kv_bytes_per_token(read_config(folder), torch_dtype(settings.dtype))
    spec = settings.spec((pool.blocks + 2) * pool.block_tokens * token_bytes)  # vLLM reserves one block
    model = VllmForward(VllmSettings(spec, folder, facts.vocab_size, facts.max_context_tokens))
    longest = max((pool.of_long(), pool.of(0)), key=len)
    positions = max(pool.long_tokens, pool.tokens)
    for start in range(0, positions, _PREFILL_TOKENS):
        stop = min(positions, start + _PREFILL_TOKENS)
        tokens = [(7 * position + 3) % facts.vocab_size for position in range(start, stop)]
        model.forward([Segment(tokens, start, longest[: -(-stop // pool.block_tokens)], 0)])
    others = [pool.of(generation) for generation in range(pool.generations)]
    copies = [BlockCopy(a, b) for one in others for a, b in zip(longest, one, strict=False) if a != b]
    model.forward([Segment([1], 0, longest[:1], 1)], copies)
    return model


if __name__ == "__main__":
    main()
