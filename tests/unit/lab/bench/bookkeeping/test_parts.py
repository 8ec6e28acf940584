"""The parts that need no Ray run, at tiny sizes: what they measure is all there."""

import asyncio
import pickle

from lab.bench.bookkeeping import ingress, verifier
from lab.bench.bookkeeping.figures import BlockCost, Flow, middle
from lab.bench.bookkeeping.ingress import recorded
from outrider.contracts.requests import FinishReason, GenerationChunk
from serve_app.coordination.credit import MOST_UNREAD_TOKENS

TOKENS = 5


def test_a_recording_tells_all_responses_to_their_ends_a_step_to_a_message() -> None:
    messages = [pickle.loads(message) for message in asyncio.run(recorded(["a", "b"], TOKENS))]
    for name in ("a", "b"):
        chunks: list[GenerationChunk] = [piece for message in messages for of, piece in message if of == name]
        assert [len(chunk.token_ids) for chunk in chunks] == [1] * TOKENS
        assert [chunk.finish_reason for chunk in chunks] == [None] * (TOKENS - 1) + [FinishReason.LENGTH]
    assert max(map(len, messages)) == 2


def test_an_ingress_answers_all_its_clients() -> None:
    streamed, whole = ingress.measured(sequences=2, tokens=MOST_UNREAD_TOKENS, repeats=1)
    assert [flow.part for flow in (*streamed, *whole)] == ["ingress, streamed", "ingress, whole"]
    assert all(flow.tokens_per_s > 0.0 and flow.cpu_s > 0.0 for flow in (*streamed, *whole))


def test_a_verifier_decides_all_its_blocks() -> None:
    autonomous_runs, drafts = verifier.measured(context_tokens=40, generations=3, steps=4, repeats=2)
    assert [(cost.kind, cost.context_tokens) for cost in autonomous_runs] == [("stretches", 40)] * 2
    assert [(cost.kind, cost.context_tokens) for cost in drafts] == [("drafts of 4", 40)] * 2
    assert all(cost.step_s > 0.0 and cost.messages_s > 0.0 for cost in (*autonomous_runs, *drafts))


def test_figures_are_medians() -> None:
    flows = [Flow("part", speed, 10.0 * speed, 1 / speed) for speed in (3.0, 1.0, 2.0)]
    assert (middle(flows, "tokens_per_s"), middle(flows, "cpu_s")) == (2.0, 0.5)
    costs = [BlockCost("kind", 7, step_s, 2 * step_s) for step_s in (3.0, 1.0, 2.0)]
    assert (middle(costs, "step_s"), middle(costs, "messages_s")) == (2.0, 4.0)
