from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from outrider.contracts.cost import LinearCostModel, VerifyCost
from outrider.contracts.verifying import Block, KvUsage, OpenGeneration, Outcome, Resolution, Verified, VerifierEngine
from outrider.costs.batch_runs import BatchRunner, ProfilingError, UniquePrompts
from tests.unit.engines.conftest import VOCAB, tiny_llama, torch_verifier

TRUTH = LinearCostModel(2e-3, 1e-6, 1e-5, 0.04)


class TimedEngine:
    """A verifier of known speed: nothing is computed, but its clock moves."""

    def __init__(self, cached_tokens: int = 0) -> None:
        self.now_s = 0.0
        self.passes: list[tuple[VerifyCost, ...]] = []
        self._computed: dict[str, int] = {}
        self._cached_tokens = cached_tokens

    def open(self, request: OpenGeneration) -> None:
        self._computed[request.generation] = 0

    def verify(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> list[Outcome]:
        assert not resolutions
        costs = []
        for block in blocks:
            cached = self._computed[block.generation]
            costs.append(VerifyCost(block.position + len(block.draft) - cached, cached))
            self._computed[block.generation] = block.position
        self.passes.append(tuple(costs))
        self.now_s += TRUTH.predict_s(costs)
        return [Verified(one.generation, one.round, (), 1, cached_tokens=self._cached_tokens) for one in blocks]

    max_context_tokens = 10_000

    def prepare(self, blocks: Sequence[Block], resolutions: Sequence[Resolution] = ()) -> dict[str, Future[None]]:  # noqa: ARG002
        return {}

    def close(self, generation: str, *, keep_cache: bool) -> None:
        assert not keep_cache, "what was measured must not help what follows"
        del self._computed[generation]

    def due(self, generation: str, at_s: float) -> None:
        pass

    def evicted(self) -> tuple[tuple[str, int], ...]:
        return ()

    def usage(self) -> KvUsage:
        return KvUsage(16, 100, 0, 0, len(self._computed), 0)

    def committed(self, generation: str) -> Sequence[int]:
        raise NotImplementedError(generation)

    def forced(self, generation: str, most: int) -> tuple[int, ...]:
        raise NotImplementedError(generation, most)

    def last_pass(self) -> tuple[VerifyCost, ...]:
        return self.passes[-1]


def runner_of(engine: TimedEngine) -> BatchRunner:
    checked: VerifierEngine = engine
    return BatchRunner(checked, UniquePrompts(50_000, 0), lambda: engine.now_s)


BATCHES = [
    (VerifyCost(30, 0),),
    (VerifyCost(3, 40), VerifyCost(1, 25)),
    (VerifyCost(17, 0), VerifyCost(5, 60), VerifyCost(2, 0)),
]


@pytest.mark.parametrize("blocks", BATCHES)
@pytest.mark.parametrize("warmups", [0, 3])
def test_the_batch_that_is_timed_is_the_one_asked_for(blocks: tuple[VerifyCost, ...], warmups: int) -> None:
    engine = TimedEngine()
    seconds = runner_of(engine).run(blocks, warmups)
    assert engine.passes[-1] == blocks
    assert seconds == pytest.approx(TRUTH.predict_s(blocks))
    assert engine.usage().generations == 0, "all of them are closed"
    warm = sum(bool(block.cached_tokens) for block in blocks)
    assert len(engine.passes) == warm + warmups + 1


def test_cached_prompts_end_the_profile() -> None:
    with pytest.raises(ProfilingError, match="found 16 tokens of it"):
        runner_of(TimedEngine(cached_tokens=16)).run(BATCHES[0])


@pytest.mark.parametrize("blocks", BATCHES)
def test_a_real_engine_decides_every_block(blocks: tuple[VerifyCost, ...]) -> None:
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=64)
    ticks = iter(range(100))
    runner = BatchRunner(engine, UniquePrompts(VOCAB, 0), lambda: float(next(ticks)))
    assert [runner.run(blocks, 1), runner.run(blocks)] == [1.0, 1.0]
    assert (engine.usage().used_blocks, engine.usage().cached_blocks) == (0, 0)


def test_a_chunk_that_is_too_small_for_one_pass_is_noticed() -> None:
    engine = torch_verifier(tiny_llama(), prefill_chunk_tokens=16)
    with pytest.raises(ProfilingError, match="a pass that decides every block, found Unfinished"):
        BatchRunner(engine, UniquePrompts(VOCAB, 0), lambda: 0.0).run((VerifyCost(40, 0),))


def test_no_prompt_is_used_twice() -> None:
    prompts = UniquePrompts(1000, seed=0)
    taken = [prompts.take(length) for length in (1, 1, 5, 20, 20)]
    assert [len(prompt) for prompt in taken] == [1, 1, 5, 20, 20]
    assert len({prompt[0] for prompt in taken}) == 5
    few = UniquePrompts(2, seed=0)
    assert {few.take(1), few.take(1)} == {(0,), (1,)}
    with pytest.raises(ProfilingError, match="never used"):
        few.take(1)
