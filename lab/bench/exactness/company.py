"""The same requests in batches: random composition, windows, drafts, prompt chunks, little memory, and losses."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Any

from lab.bench.exactness.reference import Said, Target, block_of, said_alone
from lab.bench.exactness.requests import Ahead, Request, draw_draft
from outrider.contracts.errors import OutriderError
from outrider.contracts.requests import TokenLogprobs
from outrider.contracts.verifying import Block, OpenGeneration, Unfinished, Verified
from outrider.engines.verifier.engine import PagedVerifier

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A token that differs from the reference's; the first of its response, after which nothing is compared."""

    request: str
    position: int  # of the output
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class Counts:
    requests: int = 0
    reference_tokens: int = 0
    tokens: int = 0  # compared with the reference
    differences: int = 0
    logprobs: int = 0  # numbers compared with the reference
    logprob_bits: int = 0  # those of them that differ in a bit
    passes: int = 0
    blocks: int = 0  # in these passes
    widest: int = 0  # blocks of one pass
    drafts: int = 0
    trees: int = 0  # among the drafts
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    engines_lost: int = 0
    generations_lost: int = 0
    evictions: int = 0
    found: tuple[Difference, ...] = ()

    def __add__(self, other: "Counts") -> "Counts":
        values: dict[str, Any] = {
            field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Counts)
        }
        widest, found = max(self.widest, other.widest), values["found"][:_SHOWN]
        return Counts(**{**values, "widest": widest, "found": found})


def total(parts: "list[Counts]") -> Counts:
    return reduce(add, parts, Counts())


def faults(counts: Counts, *, bits_promised: bool) -> list[str]:
    """Violations; ``bits_promised``: whether log-probabilities have to be the same to the last bit."""
    told = []
    if not counts.tokens:
        told.append("no token was compared")
    if counts.differences:
        told.append(f"{counts.differences} responses differ from the engine's alone")
    if bits_promised and counts.logprob_bits:
        told.append(f"{counts.logprob_bits} log-probabilities differ in their bits")
    return told


MOST_GENERATIONS = 32
_CHUNKS = (5, 16, 33, 64, 128, 512)
_ENGINE_LOST = 0.04  # per pass
_GENERATION_LOST = 0.02  # per generation and pass
_ALL_TOGETHER = 0.6  # share of passes with all generations
_PASSES_OF_A_SIZE = (3, 15)
_MOST_IDLE_PASSES = 2000
_FEW_POSITIONS = (600, 2000)  # KV memory that is short: at least two of the longest generations


class StuckError(OutriderError):
    """The engine no longer decides anything."""


@dataclass(slots=True)
class _Member:
    request: Request
    said: Said
    tokens: list[int]
    pending: Block | None = None
    round: int = 0

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt_ids) :]

    @property
    def done(self) -> bool:
        return len(self.output) >= self.request.tokens

    def opening(self) -> OpenGeneration:
        request = self.request
        return OpenGeneration(
            request.name, request.prompt_ids, request.params, tuple(self.output), logprobs=request.logprobs
        )


def tried(target: Target, requests: Sequence[Request], seed: int) -> Counts:
    said = [said_alone(target.engine(target.max_context_tokens), request) for request in requests]
    own = Counts(requests=len(requests), reference_tokens=sum(len(one.token_ids) for one in said))
    return own + Company(target, seed).run(requests, said)


class Company:
    """Generations of one target that run together."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target, self._rng = target, random.Random(seed)  # noqa: S311 (inputs, not secrets)
        self._members: list[_Member] = []
        self.counts = Counts()

    def run(self, requests: Sequence[Request], said: Sequence[Said]) -> Counts:
        """Answer all requests, and compare each with its reference.

        Raises:
            StuckError: the engine decides nothing for thousands of passes.
        """
        waiting = [_Member(one, alone, list(one.prompt_ids)) for one, alone in zip(requests, said, strict=True)]
        self._rng.shuffle(waiting)
        engine, most, left, idle = self._new_engine(), 1, 0, 0
        while waiting or self._members:
            if not left:
                most, left = self._rng.randint(1, MOST_GENERATIONS), self._rng.randint(*_PASSES_OF_A_SIZE)
            left -= 1
            while waiting and len(self._members) < most:
                self._members.append(waiting.pop())
                engine.open(self._members[-1].opening())
            lost = self._rng.random() < _ENGINE_LOST
            decided = self._pass(engine, most, heard=not lost or self._rng.random() < 1 / 2)
            idle = 0 if decided or lost else idle + 1
            if idle > _MOST_IDLE_PASSES:
                raise StuckError(f"needs a pass that decides something, found none in {idle}")
            for member in [one for one in self._members if one.done]:
                engine.close(member.request.name, keep_cache=self._rng.random() < 1 / 2)
                self._members.remove(member)
            if lost:
                engine = self._replaced(engine)
            else:
                self._lose_generations(engine)
        self._count(evictions=engine.usage().evictions)
        return self.counts

    def _new_engine(self) -> PagedVerifier:
        """An engine with memory for all generations, or for a few."""
        few = self._rng.randint(*_FEW_POSITIONS) // self._target.model.block_tokens
        return self._target.engine(self._rng.choice(_CHUNKS), few if self._rng.random() < 1 / 2 else None)

    def _replaced(self, engine: PagedVerifier) -> PagedVerifier:
        """Another engine that is given each generation's committed tokens, as after a crash."""
        self._count(engines_lost=1, evictions=engine.usage().evictions)
        fresh = self._new_engine()
        for member in self._members:
            member.pending = None
            fresh.open(member.opening())
        return fresh

    def _lose_generations(self, engine: PagedVerifier) -> None:
        for member in self._members:
            if self._rng.random() < _GENERATION_LOST:
                engine.close(member.request.name, keep_cache=self._rng.random() < 1 / 2)
                engine.open(member.opening())
                member.pending = None
                self._count(generations_lost=1)

    def _pass(self, engine: PagedVerifier, most: int, *, heard: bool) -> int:
        """Call the engine once; return how many blocks it decided. ``heard``: its outcomes are not lost with it."""
        together = self._members[:most]
        if self._rng.random() >= _ALL_TOGETHER:
            together = self._rng.sample(together, self._rng.randint(1, len(together)))
        for member in together:
            member.pending = member.pending or self._block(member)
        blocks = [member.pending for member in together if member.pending is not None]
        outcomes = engine.verify(blocks)
        self._count(passes=1, blocks=len(blocks), widest=len(blocks))
        decided = 0
        for member, outcome in zip(together, outcomes, strict=True):
            if isinstance(outcome, Verified) and heard:
                decided += 1
                self._take(member, outcome)
            elif not isinstance(outcome, Verified | Unfinished):
                raise StuckError(f"needs a decision on {member.request.name}, found {outcome}")
        return decided

    def _block(self, member: _Member) -> Block:
        made = len(member.output)
        said = member.said
        ahead = Ahead(said.token_ids[made:], said.runners_up[made:], member.tokens)
        draft = draw_draft(ahead, self._rng, self._target.vocab_size)
        member.round += 1
        if draft.token_ids:
            self._count(drafts=1, trees=int(draft.parents is not None), drafted_tokens=len(draft.token_ids))
        plain = block_of(member.request, member.round, member.tokens)
        # Without a wanted token behind it, only a draft commits anything.
        bonus = not draft.token_ids or self._rng.random() < 0.9
        return replace(plain, draft=draft.token_ids, parents=draft.parents, bonus=bonus)

    def _take(self, member: _Member, outcome: Verified) -> None:
        """Append what was decided, and compare it; a response that differs ends."""
        block, before = member.pending, len(member.output)
        assert block is not None, "it was asked for"
        accepted = [block.draft[node] for node in outcome.accepted_path]
        new = [*accepted, *([] if outcome.next_token is None else [outcome.next_token])]
        expected, logprobs = member.said.token_ids[before:], member.said.logprobs[before:]
        member.tokens += new
        member.pending = None
        self._count(accepted_tokens=len(accepted))
        for at, (mine, theirs) in enumerate(zip(new, expected, strict=False)):
            self._count(tokens=1)
            if mine != theirs:
                self._count(differences=1, found=(Difference(member.request.name, before + at, theirs, mine),))
                member.tokens += [0] * member.request.tokens  # past its end
                return
        if member.request.logprobs is not None:
            for entry, reference in zip(outcome.logprobs, logprobs, strict=False):
                self._compare(entry, reference, member.request.logprobs)

    def _compare(self, entry: TokenLogprobs, reference: TokenLogprobs, top: int) -> None:
        theirs = [(reference.token_id, reference.logprob), *reference.top[:top]]
        mine = [(entry.token_id, entry.logprob), *entry.top]
        differing = sum(one != other for one, other in zip(mine, theirs, strict=True))
        self._count(logprobs=len(theirs), logprob_bits=differing)

    def _count(self, **counted: object) -> None:
        self.counts += Counts(**counted)  # type: ignore[arg-type]  # fields by name
