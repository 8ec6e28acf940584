"""``outrider bench structured``: a verifier's passes with and without a grammar, alternating on one engine.

Both arms make as many passes with as many rows: each generation verifies ``--window`` right tokens, for which a
grammar's masks cost most. Times are of whole passes, without the first of each arm. They are CPU times of the process's
threads, so that other processes do not count.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import process_time

import torch

from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import Grammar, SamplingParams
from outrider.contracts.verifying import Block, OpenGeneration, Unfinished, Verified, target_rule
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.verifier import TorchVerifier
from outrider.grammar.texts import of_json_schema
from outrider.models.grammars import grammars_of
from outrider.models.loading import load_target
from outrider.text.tokens import backend_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "notes": {"type": "array", "items": {"type": "string"}, "minItems": 8},
    },
    "required": ["name", "age", "notes"],
    "additionalProperties": False,
}
_PROMPT = "Describe a person as JSON, with many long notes.\n"


class _Generation:
    """A generation of an arm, as the verifier sees it."""

    def __init__(self, name: str, prompt: Sequence[int], params: SamplingParams) -> None:
        self.opening = OpenGeneration(name, tuple(prompt), params)
        self.tokens, self.round = list(prompt), 0

    def block(self, draft: Sequence[int]) -> Block:
        return Block(
            generation=self.opening.generation,
            round=self.round,
            position=len(self.tokens),
            prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, self.tokens),
            draft=tuple(draft),
            rule=target_rule(self.opening.params),
        )

    def take(self, block: Block, outcome: Verified) -> None:
        after = [] if outcome.next_token is None else [outcome.next_token]
        self.tokens += [*(block.draft[node] for node in outcome.accepted_path), *after]
        self.round += 1


def main(argv: Sequence[str]) -> None:
    """Run the bench and print what it found."""
    parser = argparse.ArgumentParser(prog="outrider bench structured", description=__doc__)
    add = parser.add_argument
    add("--target", default="embedded", help="model (default: %(default)s)")
    add("--dtype", default="float32", help="of the target (default: %(default)s)")
    add("--generations", type=int, nargs="+", default=[1, 8], help="in a batch (default: %(default)s)")
    add("--window", type=int, default=4, help="tokens of each draft (default: %(default)s)")
    add("--temperature", type=float, default=0.0, help="of all (default: %(default)s)")
    add("--passes", type=int, default=20, help="of each arm and turn (default: %(default)s)")
    add("--turns", type=int, default=3, help="of each arm (default: %(default)s)")
    add("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    loaded = load_target(args.target, dtype=args.dtype, device="cpu")
    engine = TorchVerifier(loaded, EngineLimits(kv_budget_bytes=2**29), grammars=grammars_of(loaded))
    prompt = backend_of(loaded.tokenizer).encode(_PROMPT).ids
    free = SamplingParams(temperature=args.temperature, seed=1)
    bound = replace(free, grammar=Grammar(of_json_schema(SCHEMA)))
    print("| generations | window | free ms | bound ms | bound / free |\n| --- | --- | --- | --- | --- |")
    for count in args.generations:
        for window in (0, args.window):
            times: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * args.turns):
                constrained = bool(turn % 2)
                params = bound if constrained else free
                times[constrained] += _passes(engine, prompt, params, count, window, args.passes)
            plain, masked = (1e3 * median(times[arm]) for arm in (False, True))
            print(f"| {count} | {window} | {plain:.2f} | {masked:.2f} | {masked / plain:.3f} |", flush=True)


def _passes(
    engine: TorchVerifier, prompt: Sequence[int], params: SamplingParams, count: int, window: int, passes: int
) -> list[float]:
    """Seconds of each pass; all drafts are right, as the response was made before."""
    truth = _made(engine, prompt, params, passes * (window + 1) + 1) if window else []
    generations = [_Generation(f"g{i}", prompt, params) for i in range(count)]
    times = []
    for one in generations:
        engine.open(one.opening)
    for _ in range(passes):
        blocks = [one.block(truth[len(one.tokens) - len(prompt) :][:window]) for one in generations]
        began_s = process_time()
        outcomes = engine.verify(blocks)
        times.append(process_time() - began_s)
        while any(isinstance(outcome, Unfinished) for outcome in outcomes):  # the prompt's chunks: the first pass only
            outcomes = engine.verify(blocks)
        for one, block, outcome in zip(generations, blocks, outcomes, strict=True):
            assert isinstance(outcome, Verified), outcome
            one.take(block, outcome)
    for one in generations:
        engine.close(one.opening.generation, keep_cache=False)
    return times[1:]


def _made(engine: TorchVerifier, prompt: Sequence[int], params: SamplingParams, length: int) -> list[int]:
    one = _Generation("truth", prompt, params)
    engine.open(one.opening)
    while len(one.tokens) < len(prompt) + length:
        block = one.block(())
        (outcome,) = engine.verify([block])
        if isinstance(outcome, Verified):
            one.take(block, outcome)
    engine.close("truth", keep_cache=False)
    return one.tokens[len(prompt) :]
