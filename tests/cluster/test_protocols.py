"""Every protocol through HTTP: exact where it is greedy, truly scored where it samples, and over a far link."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import ray

from outrider.contracts.drafting import DraftPlan
from outrider.contracts.requests import ProtocolName
from outrider.link.profiles import LinkProfile
from outrider.models.loading import LoadedModel
from outrider.protocols.registry import PROTOCOLS
from outrider.rounds.timing import RoundTiming
from outrider.training.traces import prompt_ids
from serve_app.metrics import LINK_RTT_S, PAYLOAD_BITS
from tests.cluster.conftest import DRAFTERS
from tests.cluster.prompts import CHATS
from tests.cluster.reference import greedy, ids_of, scores, shown
from tests.cluster.served import TOKENS, Service, eventually
from tests.cluster.streams import streams

FAR = LinkProfile(up_bps=100e6, down_bps=100e6, rtt_s=0.08)
_WITHIN_S = 120.0
_EXPORTED_WITHIN_S = 60.0
_MOST_KILLS = 3
_MOST_ASKED = 10  # times for a response with a draft


@dataclass(frozen=True)
class Asked:
    """A plan as a request names it."""

    protocol: ProtocolName
    window: int
    expansion: tuple[int, ...] = ()
    rows: int | None = None

    @property
    def options(self) -> dict[str, object]:
        """As the request's ``outrider``."""
        shape = {"expansion": list(self.expansion), "rows": self.rows}
        return {"protocol": self.protocol, "window": self.window} | shape


CHAINS = tuple(Asked(name, 4) for name in PROTOCOLS if name != "tslt_tree" and not PROTOCOLS[name].judged)
TREES = (Asked("token_ids", 3, (2, 2, 1)), Asked("token_ids", 3, rows=6), Asked("tslt_tree", 3, (3, 2, 1)))
PLANS = (*CHAINS, *TREES)


def under_each(service: Service, prompt: list[int], plans: tuple[Asked, ...], **extra: object) -> dict[Asked, Any]:
    """A completion under each plan, all at once."""
    answers = service.under_each([asked.options for asked in plans], prompt, ignore_eos=True, **extra)
    return dict(zip(plans, answers, strict=True))


def drafted_under_each(
    service: Service, prompt: list[int], plans: tuple[Asked, ...], **extra: object
) -> list[tuple[Asked, Any]]:
    """The same, until there is one with a draft for each plan: a response may end before a drafter is ready for it."""
    answers: list[tuple[Asked, Any]] = []
    for _ in range(_MOST_ASKED):
        answers += under_each(service, prompt, plans, **extra).items()
        drafted = {asked for asked, answer in answers if sent_bits(answer) > 0}
        plans = tuple(asked for asked in plans if asked not in drafted)
        if not plans:
            return answers
    raise AssertionError(f"nobody drafted for any of {_MOST_ASKED} responses under {plans}")


def sent_bits(answer: dict[str, Any]) -> int:
    """Of all its drafts."""
    bits: int = answer["usage"]["outrider"]["payload_bits"]["up"]
    return bits


@pytest.fixture(scope="module")
def prompt(target: LoadedModel) -> list[int]:
    return prompt_ids(target.tokenizer, CHATS[0])


@pytest.fixture(scope="module")
def expected(target: LoadedModel, prompt: list[int]) -> str:
    """What the target alone answers."""
    return shown(target, greedy(target, prompt, TOKENS))


def test_greedy_output_is_the_targets_own_under_every_protocol(
    service: Service, prompt: list[int], expected: str
) -> None:
    for asked, answer in under_each(service, prompt, PLANS, temperature=0).items():
        assert answer["choices"][0]["text"] == expected, asked
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert_made_by(asked, answer["usage"]["outrider"])


def assert_made_by(asked: Asked, usage: dict[str, Any]) -> None:
    """The protocol that was asked for took part, and no other; it was paid for, and nothing was given up."""
    assert set(usage["protocols"]) - {"none"} == {asked.protocol}
    assert sum(usage["protocols"].values()) == usage["rounds"]
    assert usage["accepted_tokens"] > 0, asked
    assert min(usage["payload_bits"].values()) > 0
    assert usage["lossless"] is True


def test_sampled_tokens_are_scored_by_the_target_under_every_protocol(
    service: Service, target: LoadedModel, prompt: list[int]
) -> None:
    """Whoever drew them: the device (a correction), the drafter or the target. Stop strings end them all the same."""
    wire = service.config.wire.format(target.vocab_size)
    answers = drafted_under_each(service, prompt, PLANS, temperature=1, logprobs=1, stop=["the"])
    reasons = set()
    for asked, answer in answers:
        choice, usage = answer["choices"][0], answer["usage"]["outrider"]
        reasons.add(choice["finish_reason"])
        assert "the" not in choice["text"]
        assert choice["finish_reason"] == "stop" or answer["usage"]["completion_tokens"] == TOKENS
        tokens = ids_of(target, choice["logprobs"]["tokens"])
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(scores(target, prompt, tokens), abs=1e-3), asked
        assert usage["lossless"] is True
        if asked in CHAINS:
            one = PROTOCOLS[asked.protocol].expected_bits(wire, DraftPlan(asked.protocol, 1))
            up_bits, drafted = usage["payload_bits"]["up"], usage["drafted_tokens"]
            assert up_bits >= drafted * one, "never less than the papers' formula"
    assert "stop" in reasons


@pytest.fixture
def far(service: Service) -> Iterator[LinkProfile]:
    """A slow link to every drafter."""
    drafters = [service.drafter(drafter["name"]) for drafter in service.drafters("ready")]
    ray.get([actor.emulate_link.remote(FAR) for actor in drafters], timeout=60)
    yield FAR
    ray.get([actor.emulate_link.remote(None) for actor in drafters], timeout=60)


def timings(service: Service) -> list[RoundTiming]:
    """The coordinator's rounds since it was asked last."""
    told: list[RoundTiming] = service.ask_coordinator("recent_timings")
    return told


def test_over_a_far_link_the_output_is_the_same_and_the_link_is_measured(
    service: Service, prompt: list[int], expected: str, far: LinkProfile
) -> None:
    timings(service)  # of whatever was before
    plans = (Asked("token_ids", 1), Asked("dssd", 1), Asked("tslt", 1))
    answers = under_each(service, prompt, plans, temperature=0)
    assert {answer["choices"][0]["text"] for answer in answers.values()} == {expected}
    drafted = [timing for timing in timings(service) if timing.protocol is not None]
    assert {timing.protocol for timing in drafted} == {asked.protocol for asked in plans}
    assert min(timing.link_s for timing in drafted) >= far.rtt_s * 0.99, "there and back, short of the clock's grain"
    for asked in plans:
        sent = sum(timing.up_bits for timing in drafted if timing.protocol == asked.protocol)
        assert 0 < sent <= answers[asked]["usage"]["outrider"]["payload_bits"]["up"]
        labels = {"protocol": asked.protocol, "direction": "up"}
        eventually(lambda b=sent, of=labels: service.exported(PAYLOAD_BITS, **of) >= b, _EXPORTED_WITHIN_S)  # type: ignore[misc]

    def measured() -> bool:
        """What is known of a link changes as messages cross it."""
        under_each(service, prompt, plans[:1], temperature=0)
        return service.exported(LINK_RTT_S) >= far.rtt_s * 0.9

    eventually(measured, _EXPORTED_WITHIN_S)


def test_a_drafter_is_killed_while_it_owes_corrections(service: Service, far: LinkProfile) -> None:
    """Another one of its model draws them, from the same rows: nothing is lost of the law."""
    assert far.rtt_s > 0, "most of the time corrections are on their way"
    options = {"outrider": {"protocol": "dssd", "window": 4}, "temperature": 1.0, "seed": None}
    name = service.drafters()[0]["name"]

    def leases() -> int:
        return sum(drafter["generations"] for drafter in service.drafters("ready") if drafter["name"] == name)

    def kill() -> None:
        eventually(lambda: leases() > 0, _WITHIN_S)
        ray.kill(service.drafter(name), no_restart=False)

    def owed() -> int:
        return len(service.events("drafter_given_up", correction_owed=True, drafter=name))

    before = owed()
    for _ in range(_MOST_KILLS):
        eventually(lambda: len(service.drafters("ready")) == DRAFTERS, _WITHIN_S)
        told = [response.usage["outrider"] for response in streams(service.url, kill, tokens=32, options=options)]
        assert all(usage["lossless"] is True for usage in told)
        assert set().union(*(usage["protocols"] for usage in told)) <= {"none", "dssd"}
        assert sum(usage["accepted_tokens"] for usage in told) > 0
        service.check_released()
        if owed() > before:
            break
    assert owed() > before, "it died without owing a correction, each time"
    eventually(lambda: len(service.drafters("ready")) == DRAFTERS, _WITHIN_S)
