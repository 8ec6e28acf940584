import pytest

from actors.messages import DrafterId
from lab.bench.capacity.emulated_devices import (
    GROUP,
    DeviceSpec,
    EmulatedDevice,
    EmulatedFleet,
    generation_name,
    user_of,
)
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.errors import DrafterLostError
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.verifying import OpenGeneration
from outrider.link.profiles import LinkProfile
from outrider.session.session import CoordinatorSession
from outrider.wire.replies import Answer
from serve_app.coordination.drafting.link_services import DrafterPort
from tests.unit.lab.bench.recorded_tiny import PROMPTS, tiny_responses
from tests.unit.serve_app.coordination.in_memory import GREEDY, WIRE
from tests.unit.virtual_clock import now_s, on_loop

NAME = generation_name("cell", 0, 0)
FAST = LinkProfile(1e9, 1e9, 0.0)
STEP_S, PREFILL_S = 1e-4, 1e-5
RECORDED = {response.prompt_ids: response for response in tiny_responses()}


def device(link: LinkProfile = FAST) -> EmulatedDevice:
    return EmulatedDevice(DeviceSpec(STEP_S, PREFILL_S, link, seed=1), RECORDED, now_s)


def request(number: int, known: int, output: tuple[int, ...], window: int) -> DraftRequest:
    """After ``output``, of which the device has the first ``known`` tokens."""
    prompt = PROMPTS[0]
    return DraftRequest(
        generation=NAME,
        round=number,
        feedback_position=len(prompt) + known,
        feedback=output[known:],
        prefix_hash=extend_prefix_hash(EMPTY_PREFIX_HASH, (*prompt, *output)),
        plan=DraftPlan("token_ids", window),
    )


async def opened(target: EmulatedDevice) -> CoordinatorSession:
    await target.open(OpenGeneration(NAME, PROMPTS[0], GREEDY), DraftTerms(WIRE), 5.0)
    return CoordinatorSession(WIRE, NAME)


async def drafted(target: EmulatedDevice, session: CoordinatorSession, asked: DraftRequest) -> tuple[Draft, Answer]:
    answer = await target.exchange(NAME, session.encode_order(asked), 5.0)
    draft = session.decode_answer(answer.data, asked)
    assert isinstance(draft, Draft)
    return draft, answer


@on_loop
async def test_it_drafts_what_was_recorded_as_fast_as_it_is_said_to() -> None:
    target, response = device(), tiny_responses()[0]
    session = await opened(target)
    output = response.output_ids
    _, read = await drafted(target, session, request(-1, 0, (), 0))
    first, worked = await drafted(target, session, request(0, 0, output[:1], 4))
    second, again = await drafted(target, session, request(1, 1, output[:3], 4))
    assert (first.token_ids, second.token_ids) == (response.draft(1, 4), response.draft(3, 4))
    assert (first.position, second.position) == (len(PROMPTS[0]) + 1, len(PROMPTS[0]) + 3)
    assert read.drafter_s == pytest.approx(PREFILL_S * len(PROMPTS[0]))
    assert worked.drafter_s == again.drafter_s == pytest.approx(4 * STEP_S)
    assert target.strays == 0


@on_loop
async def test_a_repeated_order_is_answered_with_the_same_bytes_at_once() -> None:
    target = device()
    session = await opened(target)
    order = session.encode_order(request(0, 0, tiny_responses()[0].output_ids[:1], 3))
    first, second = await target.exchange(NAME, order, 5.0), await target.exchange(NAME, order, 5.0)
    assert first.data == second.data
    assert second.drafter_s == 0.0


@on_loop
async def test_what_it_does_not_hold_or_cannot_follow_is_asked_for_anew() -> None:
    target = device()
    session = await opened(target)
    output = tiny_responses()[0].output_ids
    ahead = await target.exchange(NAME, session.encode_order(request(0, 3, output[:4], 2)), 5.0)
    assert ahead.data == b""
    target.close(NAME)
    forgotten = await target.exchange(NAME, session.encode_order(request(1, 0, output[:1], 2)), 5.0)
    assert forgotten.data == b""


@on_loop
async def test_tokens_that_were_not_recorded_are_counted_and_drafted_for_all_the_same() -> None:
    target, response = device(), tiny_responses()[0]
    session = await opened(target)
    other = tuple((token + 1) % WIRE.vocab_size for token in response.output_ids[:2])
    draft, _ = await drafted(target, session, request(0, 0, other, 2))
    assert draft.token_ids == response.draft(2, 2)
    assert target.strays == 1


@on_loop
async def test_a_link_too_slow_for_the_deadline_loses_the_drafter() -> None:
    target = device(LinkProfile(1e9, 1e9, 60.0))
    with pytest.raises(DrafterLostError, match=r"needs to answer within 0\.01 s"):
        await target.open(OpenGeneration(NAME, PROMPTS[0], GREEDY), DraftTerms(WIRE), 0.01)


@on_loop
async def test_a_probe_is_answered_in_full() -> None:
    answer = await device().probe(bytes(10), 2000, 5.0)
    assert answer == Answer(bytes(2000), 0.0)


@on_loop
async def test_each_user_has_a_device_of_its_own() -> None:
    devices = [device(), device()]
    fleet = EmulatedFleet(devices)
    second = generation_name("cell", 1, 7)
    assert user_of(second) == 1
    port = await fleet.lease(second, frozenset(), None)
    assert port == DrafterPort(DrafterId(GROUP, 1), devices[1])
    assert await fleet.lease(second, frozenset({DrafterId(GROUP, 1)}), None) is None
    fleet.report_lost(DrafterId(GROUP, 1))
    fleet.report_broken(DrafterId(GROUP, 0), "sent a poem", "g")
    assert fleet.faults == ["drafter-emulated-1 was lost", "drafter-emulated-0: sent a poem"]
