"""What usage on every event costs: the same for each, however many choices, rounds and reports there are."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import thread_time

from outrider.contracts.requests import (
    ChoiceReport,
    FinishReason,
    GenerationChunk,
    GenerationRequest,
    PlanEstimate,
    RoundStats,
    TextSpan,
    TokenOrigin,
)
from serve_app.api.openai.writing.choice_reader import KEPT_REPORTS
from tests.unit.serve_app.api.asking import COMPLETION, events_of, post
from tests.unit.serve_app.api.text_service import TextService

ROUNDS, PROMPTS, N = 1000, 4, 16
REPORT = ChoiceReport(PlanEstimate("token_ids", 4, (), 0.125, 2.5), PlanEstimate(None, 0, (), 0.25, 1.0), "cost")


@dataclass
class ReportingService(TextService):
    """A token a round, and why each was made so."""

    rounds: int = ROUNDS

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationChunk, None]:
        """Say "a" as often."""
        for i in range(1, self.rounds + 1):
            yield GenerationChunk(
                token_ids=(100,),
                spans=(TextSpan("a", TokenOrigin.VERIFIER),),
                stats=RoundStats(rounds=i, overrides=tuple(range(i)) if request.semantic else ()),
                shown_tokens=i,
                choices=(REPORT,) if request.explain else (),
                finish_reason=FinishReason.LENGTH if i == self.rounds else None,
            )


def test_an_event_does_not_grow_with_the_response() -> None:
    asked = {"outrider": {"explain": True}, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    *events, last, _ = events_of(post(ReportingService(rounds=300), "/v1/completions", COMPLETION | asked))
    sizes = [len(json.dumps(event)) for event in events]
    assert max(sizes) <= sizes[0] + 4, "digits of the counts"
    assert [event["usage"]["completion_tokens"] for event in (*events, last)] == [*range(1, 301), 300]
    assert len(last["usage"]["outrider"]["choices"]) == 256
    assert last["usage"]["outrider"]["choices"][0] == {
        "chosen": {
            "protocol": "token_ids",
            "window": 4,
            "expansion": [],
            "seconds_per_token": 0.125,
            "expected_tokens": 2.5,
            "rows": 0,
        },
        "runner_up": {
            "protocol": None,
            "window": 0,
            "expansion": [],
            "seconds_per_token": 0.25,
            "expected_tokens": 1.0,
            "rows": 0,
        },
        "reason": "cost",
    }


def test_many_choices_of_many_rounds_are_told_in_linear_time() -> None:
    """64 choices of 1,000 rounds: 64,000 events, which took 355 ms each once 256 rounds of each choice were known."""
    asked = {"outrider": {"explain": True}, "stream": True, "n": N, "prompt": ["a"] * PROMPTS}
    options = {"stream_options": {"continuous_usage_stats": True, "include_usage": True}}
    began_s = thread_time()
    response = post(ReportingService(), "/v1/completions", COMPLETION | asked | options)
    took_s = thread_time() - began_s
    assert took_s < 120.0  # 8 s
    *_, usage, _ = response.text.rstrip("\n").rsplit("\n\n", 2)
    usage_report = json.loads(usage.removeprefix("data: "))["usage"]
    assert usage_report["completion_tokens"] == PROMPTS * N * ROUNDS
    assert len(usage_report["outrider"]["choices"]) == KEPT_REPORTS
    assert len(response.content) < 400 * PROMPTS * N * ROUNDS
    print(took_s, len(response.content))  # noqa: T201
