"""A closed loop of one verifier engine without service, link or drafter: what the engine itself could serve.

Drafts are looked up (``bench.harness.recorded_drafts``): the real drafter's, at no cost. All generations start together
from prompts nobody has seen and go on in lock step, so each pass is a full batch but for those that are done.
"""

import time
from collections.abc import Sequence
from itertools import count

from bench.engines.plan import AloneCell
from bench.harness.driver import GREEDY, GenerationDriver
from bench.harness.recorded_drafts import RecordedResponse
from bench.harness.samples import Sample
from outrider.contracts.verifying import Block, VerifierEngine

_sessions = count()


def alone_sample(
    arm: str, engine: VerifierEngine, responses: Sequence[RecordedResponse], window: int, tokens: int
) -> Sample[AloneCell]:
    """Greedy responses of ``tokens`` tokens, or as many as were recorded.

    Args:
        arm: the engine's name.
        engine: holds none of these generations.
        responses: one for each generation.
        window: draft tokens per round.
        tokens: of each response at most.

    Returns:
        ``exact`` is 1 if every token is as recorded (in float32 it must be).

    Raises:
        RoundFailedError: a block was refused, forgotten or stuck for memory.
    """
    driver, session = GenerationDriver(engine, GREEDY), next(_sessions)
    names = {f"{session}.{index}": response for index, response in enumerate(responses)}
    lengths = {name: min(tokens, len(response.output_ids)) for name, response in names.items()}
    began_at_s = time.perf_counter()
    for name, response in names.items():
        driver.open(name, response.prompt_ids)
    waiting: dict[str, Block] = {}
    while True:
        made = {name: len(driver.tokens[name]) - len(response.prompt_ids) for name, response in names.items()}
        for name, length in lengths.items():
            if made[name] < length and name not in waiting:
                draft = names[name].draft(made[name], min(window, length - made[name] - 1))
                waiting[name] = driver.block(name, draft)
        if not waiting:
            break
        waiting = {block.generation: block for block in driver.verify(tuple(waiting.values()))}
    seconds = time.perf_counter() - began_at_s
    exact = all(
        tuple(driver.tokens[name][len(response.prompt_ids) :][: lengths[name]]) == response.output_ids[: lengths[name]]
        for name, response in names.items()
    )
    driver.close(keep_cache=False)
    values = {"tokens_per_s": sum(lengths.values()) / seconds, "exact": float(exact)}
    if driver.drafted:
        values["acceptance"] = driver.accepted / driver.drafted
    return Sample(AloneCell(len(responses), window), arm, values)
