"""When a draft arrives must not decide whether it is used: the law of responses whose device is late for what it drew.

Computed, not sampled: the round loop, the link, both sessions and both engines are the real ones, over tables of logits
(``played``), on a virtual clock, along every branch of the noise (``tape``).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from outrider.contracts.drafting import Draft, DraftPlan
from outrider.contracts.errors import DrafterBrokenError, DrafterLostError, DrafterSilentError, OutriderError
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.requests import GenerationRequest, ProtocolName, RoundStats, SamplingParams
from outrider.rounds.events import AskDrafter
from outrider.rounds.generation import Generation
from outrider.rounds.rules import RunGrant
from serve_app import metrics
from serve_app.coordination.drafting.drafter_book import DrafterBook
from serve_app.coordination.drafting.drafter_link import DrafterLink
from serve_app.coordination.drafting.link_services import LinkServices
from tests.unit.serve_app.api.in_memory_service import Service, drafter, tokens_of
from tests.unit.serve_app.coordination.in_memory import (
    EDGE,
    FIRST,
    NONSENSE,
    PROMPT,
    SETTINGS,
    EngineTransport,
    Gate,
    MemoryFleet,
    until,
)
from tests.unit.verification import played
from tests.unit.verification.played import Case, Law, Pair, drafter_over, pair, target_law, verifier_over
from tests.unit.verification.tape import Tape
from tests.unit.virtual_clock import VirtualLoop, now_s, on_loop

BOUND = 3e-7  # as the gate's
WIRE = WireFormat(3)
CASE = Case(pair("flat", 1), [], SamplingParams(top_k=2), WIRE, length=3)  # few branches
SLOW_S = 20.0  # beyond every patience
RATIO = ["dsd", "tslt", "tslt_tree", "dssd", "dssd_candidates"]
DSD = DraftPlan("dsd", 3)
FREE = SamplingParams(temperature=1.0, seed=11)


def slow_for_one(draft: Draft) -> float:
    """How long a device holds a draft back: for what it says."""
    return SLOW_S if draft.token_ids[:1] == (1,) else 0.0


@dataclass(frozen=True)
class Told:
    """One response, and what was said of it."""

    tokens: tuple[int, ...]
    stats: RoundStats
    given_up: int
    took_s: float
    late: int  # drafts that were held back


def response(protocol: ProtocolName, models: Pair, must_use_deadline_s: float) -> Told:
    """Of three tokens; the first is the target's own, the second drafted."""

    async def made() -> Told:
        device = EngineTransport(drafter_over(models))
        device.delay_s = slow_for_one
        service = Service(device)
        service.verifier.engine = verifier_over(models, masks=True)
        service.link_settings = replace(SETTINGS, wire=WIRE, must_use_deadline_s=must_use_deadline_s)
        speculation = replace(service.rules.speculation, wire=WIRE)
        service.rules = replace(service.rules, speculation=speculation, grant=RunGrant(with_drafter=0))
        request = GenerationRequest(
            "g", played.PROMPT, CASE.params, CASE.length, window=1, protocol=protocol, reproducible=False
        )
        chunks = await service.response(request)
        given_up = len(service.sink.of(metrics.DRAFTS_GIVEN_UP))
        late = sum(slow_for_one(draft) > 0.0 for draft in device.answers)
        return Told(tuple(tokens_of(chunks)), chunks[-1].stats, given_up, now_s(), late)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(made())


def outcomes(protocol: ProtocolName, must_use_deadline_s: float = 60.0) -> list[tuple[float, Told]]:
    """In every case, with its probability."""
    return list(Tape().runs(lambda: response(protocol, CASE.models, must_use_deadline_s)))


def distance(found: list[tuple[float, Told]]) -> float:
    """Total variation between what is said and what the target would say."""
    law: Law = {}
    for prob, sent in found:
        law[sent.tokens] = law.get(sent.tokens, 0.0) + prob
    wanted = target_law(CASE)
    return sum(abs(law.get(tokens, 0.0) - wanted.get(tokens, 0.0)) for tokens in law | wanted) / 2


@pytest.mark.parametrize("protocol", RATIO)
def test_a_device_that_is_slow_for_what_it_drew_does_not_change_the_law(protocol: ProtocolName) -> None:
    found = outcomes(protocol)
    assert distance(found) <= BOUND
    assert sum(prob for prob, sent in found if sent.late) > 0.1
    assert all(sent.took_s > SLOW_S for _, sent in found if sent.late), "it was waited for"
    assert all((sent.stats.inexact_rounds, sent.given_up) == (0, 0) for _, sent in found)


def test_a_draft_that_never_comes_changes_the_law_and_that_is_said() -> None:
    """What a time-out costs, and that this file would notice one."""
    found = outcomes("dsd", must_use_deadline_s=5.0)
    assert distance(found) > 0.1
    late = [sent for _, sent in found if sent.late]
    assert late
    assert all(sent.stats.inexact_rounds == sent.given_up == min(1, sent.late) for _, sent in found)


def test_drafts_that_may_be_dropped_are_not_waited_for() -> None:
    """By shared noise the target's token is the same without them."""
    found = outcomes("token_ids")
    assert distance(found) <= BOUND
    assert any(sent.late for _, sent in found)
    assert all(sent.took_s < SLOW_S and sent.stats.inexact_rounds == 0 for _, sent in found)


async def ordered(
    device: EngineTransport, plan: DraftPlan, *, must_use: bool
) -> tuple[DrafterLink, MemoryFleet, AskDrafter]:
    """A link with a drafter, and what it is to ask of it."""
    fleet = MemoryFleet(device)
    request = GenerationRequest("g", PROMPT, FREE, max_tokens=100)
    generation = Generation(request, eos_token_ids=(), max_context_tokens=256)
    link = DrafterLink(generation, LinkServices(fleet, DrafterBook([EDGE]), SETTINGS, now_s))
    link.start()
    await until(lambda: link.ready)
    return link, fleet, AskDrafter(generation.begin_round(drafting=True), plan, None, 2.0, must_use, 0.0)


@on_loop
async def test_a_device_that_answers_probes_is_waited_for() -> None:
    device = drafter()
    device.delay_s = lambda draft: SLOW_S if draft.token_ids else 0.0
    link, fleet, asked = await ordered(device, DSD, must_use=True)
    began_at_s = now_s()
    answered = await link.draft(asked)
    assert answered.exchange is not None
    assert now_s() - began_at_s == pytest.approx(SLOW_S, abs=0.1)
    assert len(device.probed_at_s) > 5
    assert device.probed_at_s[0] - began_at_s >= SETTINGS.draft_deadline_s + asked.allowed_s, "not before it is late"
    assert (fleet.reported, fleet.faults, link.losses) == ([], {}, 0)
    link.close()


@on_loop
async def test_a_device_that_answers_nothing_is_lost_whatever_it_drew() -> None:
    device = drafter()
    device.gates = {"draft": Gate(), "probe": Gate()}
    link, fleet, asked = await ordered(device, DSD, must_use=True)
    began_at_s = now_s()
    answered = await link.draft(asked)
    assert (answered.exchange, answered.censored) == (None, False)
    assert now_s() - began_at_s == pytest.approx(2 * (SETTINGS.draft_deadline_s + asked.allowed_s), abs=0.1)
    assert (fleet.reported, fleet.faults) == ([FIRST], {})
    link.close()


@on_loop
async def test_a_device_that_lives_and_never_answers_is_given_up_as_broken() -> None:
    device = drafter()
    device.gates = {"draft": Gate()}
    link, fleet, asked = await ordered(device, DSD, must_use=True)
    began_at_s = now_s()
    answered = await link.draft(asked)
    assert (answered.exchange, answered.censored) == (None, True)
    assert now_s() - began_at_s == pytest.approx(SETTINGS.must_use_deadline_s, abs=0.1)
    assert "lives but sent no block" in fleet.faults[FIRST]
    assert fleet.reported == []
    link.close()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@on_loop
async def test_a_block_that_comes_while_a_probe_is_unanswered_is_used() -> None:
    device = drafter()
    device.gates = {"probe": Gate()}
    device.delay_s = lambda draft: 4.0 if draft.token_ids else 0.0
    link, fleet, asked = await ordered(device, DSD, must_use=True)
    assert (await link.draft(asked)).exchange is not None
    assert (len(device.probed_at_s), fleet.reported, fleet.faults) == (1, [], {})
    link.close()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@on_loop
async def test_a_block_that_may_be_dropped_has_a_deadline() -> None:
    device = drafter()
    device.gates = {"draft": Gate()}
    link, fleet, asked = await ordered(device, DraftPlan("token_ids", 3), must_use=False)
    began_at_s = now_s()
    assert (await link.draft(asked)).exchange is None
    assert now_s() - began_at_s == pytest.approx(SETTINGS.draft_deadline_s + asked.allowed_s, abs=0.1)
    assert (fleet.reported, device.probed_at_s) == ([FIRST], [])
    link.close()


@pytest.mark.parametrize("must_use", [True, False])
@pytest.mark.parametrize(
    ("error", "censored"),
    [
        (DrafterLostError("gone"), False),
        (DrafterSilentError("late"), True),
        (DrafterBrokenError("nan"), True),
    ],
    ids=["gone", "silent", "broken"],
)
@on_loop
async def test_only_signs_that_do_not_depend_on_the_draft_leave_the_round_exact(
    error: OutriderError, *, censored: bool, must_use: bool
) -> None:
    device = drafter()
    link, _, asked = await ordered(device, DSD, must_use=must_use)
    device.lost["draft"] = error
    answered = await link.draft(asked)
    assert (answered.exchange, answered.censored) == (None, censored)
    link.close()


@pytest.mark.parametrize("change", [NONSENSE["zeros"], lambda _: b""], ids=["zeros", "needs the prefix"])
@on_loop
async def test_nonsense_may_hide_a_draft_and_a_lost_prefix_comes_before_one(change: Callable[[bytes], bytes]) -> None:
    device = drafter()
    link, _, asked = await ordered(device, DSD, must_use=True)
    device.changes["draft"] = change
    answered = await link.draft(asked)
    assert (answered.exchange, answered.censored) == (None, change(b"\0") != b"")
    link.close()
