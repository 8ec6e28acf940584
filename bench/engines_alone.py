"""A closed loop of one verifier engine without service, link or drafter: what the engine itself could serve.

Drafts are looked up (``bench.recorded_drafts``): the real drafter's, at no cost. All generations start together from
prompts nobody has seen and go on in lock step, so each pass is a full batch but for those that are done.
"""

import time
from collections.abc import Sequence
from itertools import count

from bench.engines_driver import RoundFailedError
from bench.engines_figures import AloneSample
from bench.recorded_drafts import RecordedResponse
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import Block, OpenGeneration, Unfinished, Verified, VerifierEngine

_GREEDY = SamplingParams(temperature=0.0)
_sessions = count()


def alone_sample(
    arm: str, engine: VerifierEngine, responses: Sequence[RecordedResponse], window: int, tokens: int
) -> AloneSample:
    """Greedy responses of ``tokens`` tokens, or as many as were recorded.

    Args:
        arm: the engine's name.
        engine: holds none of these generations.
        responses: one for each generation.
        window: draft tokens per round.
        tokens: of each response at most.

    Raises:
        RoundFailedError: a block was refused, forgotten or stuck for memory.
    """
    session = next(_sessions)
    lengths = [min(tokens, len(response.output_ids)) for response in responses]
    outputs: list[list[int]] = [[] for _ in responses]
    waiting: list[Block | None] = [None] * len(responses)
    drafted = accepted = rounds = 0
    began_at_s = time.perf_counter()
    for index, response in enumerate(responses):
        engine.open(OpenGeneration(f"{session}.{index}", response.prompt_ids, _GREEDY))
    while active := [index for index, output in enumerate(outputs) if len(output) < lengths[index]]:
        rounds += 1
        for index in active:
            output, response = outputs[index], responses[index]
            room = max(0, lengths[index] - len(output) - 1)
            draft = response.draft(len(output), min(window, room))
            waiting[index] = waiting[index] or _block(f"{session}.{index}", rounds, response, output, draft)
        blocks = [block for index in active if (block := waiting[index]) is not None]
        for index, block, outcome in zip(active, blocks, engine.verify(blocks), strict=True):
            if isinstance(outcome, Unfinished) and not outcome.waits_for_memory:
                continue
            if not isinstance(outcome, Verified) or outcome.next_token is None:
                raise RoundFailedError(f"needs a decision on {block.generation}, found {outcome}")
            waiting[index] = None
            drafted, accepted = drafted + len(block.draft), accepted + outcome.accepted_len
            outputs[index] += [*block.draft[: outcome.accepted_len], outcome.next_token]
    seconds = time.perf_counter() - began_at_s
    for index in range(len(responses)):
        engine.close(f"{session}.{index}", keep_cache=False)
    return AloneSample(
        arm=arm,
        clients=len(responses),
        window=window,
        tokens_per_s=sum(lengths) / seconds,
        acceptance=accepted / drafted if drafted else None,
        exact=all(
            tuple(output) == response.output_ids[:length]
            for output, response, length in zip(outputs, responses, lengths, strict=True)
        ),
    )


def _block(name: str, number: int, response: RecordedResponse, output: Sequence[int], draft: tuple[int, ...]) -> Block:
    tokens = [*response.prompt_ids, *output]
    return Block(name, number, len(tokens), extend_prefix_hash(EMPTY_PREFIX_HASH, tokens), draft=draft)
