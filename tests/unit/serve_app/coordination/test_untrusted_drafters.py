"""A device that lies, by every protocol: untrusted, it slows an answer and never changes it."""

from dataclasses import replace

import numpy as np
import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.exchanged import DenseDraft, DraftDistribution, ScalarDraft, SparseDraft
from outrider.contracts.requests import GenerationRequest, ProtocolName, SamplingParams
from outrider.contracts.verifying import OWN_CHOICE_RULES
from outrider.protocols.protocol import RoundTerms
from outrider.protocols.registry import PROTOCOLS, judged_protocols, untrusted_safe_protocols
from tests.unit.engines.conftest import tiny_llama
from tests.unit.serve_app.api.in_memory_service import Service, drafter, request_for, tokens_of, truth_of
from tests.unit.serve_app.coordination.in_memory import FIRST, GREEDY, SAMPLED, WIRE
from tests.unit.verification.random_head import head_of
from tests.unit.virtual_clock import on_loop

EVIL = 13  # what the device wants to be said
UNSEEN = 1e-9
BY_RATIO = [
    name for name in PROTOCOLS if name not in (*untrusted_safe_protocols(PROTOCOLS, SAMPLED), *judged_protocols())
]
ANY = {"greedy": GREEDY, "seeded": SAMPLED}


def lied(draft: Draft) -> Draft:
    """Its own token everywhere, and a draft distribution that hardly has it: what p exceeds is always accepted."""
    token_ids = (EVIL,) * len(draft.token_ids)
    distribution: DraftDistribution = None
    match draft.distribution:
        case ScalarDraft() as sent:
            distribution = replace(sent, numerators=np.ones_like(sent.numerators))
        case DenseDraft() as sent:
            logits = np.zeros_like(sent.logits)
            logits[:, EVIL] = -20.0
            distribution = DenseDraft(logits)
        case SparseDraft() as sent:
            support = np.arange(EVIL - 3, EVIL + 1)
            row = np.array([0.0, 0.0, 0.0, -20.0], dtype=np.float32)
            distribution = SparseDraft((support,) * len(sent.token_ids), (row,) * len(sent.logits))
    if draft.parents is not None:
        token_ids = tuple(EVIL - i % 2 for i in range(len(draft.token_ids)))
    correction = None if draft.correction is None else EVIL
    return replace(draft, token_ids=token_ids, distribution=distribution, correction=correction)


def service(protocols: tuple[ProtocolName, ...], *, trusted: bool) -> Service:
    liar = drafter()
    liar.draws = lied
    return Service(liar, protocols=protocols, trusted=trusted)


def asked(params: SamplingParams, *, seeded: bool = True) -> GenerationRequest:
    return replace(request_for(params=params, window=4), reproducible=seeded)


@pytest.mark.parametrize("protocol", [name for name in BY_RATIO if not PROTOCOLS[name].trees])
@on_loop
async def test_a_trusted_liar_writes_the_answer(protocol: ProtocolName) -> None:
    """What the tier is for: the target hardly ever says that token by itself."""
    served = service((protocol,), trusted=True)
    request = asked(SAMPLED, seeded=False)
    tokens = tokens_of(await served.response(request))
    assert tokens.count(EVIL) > truth_of(request).count(EVIL) + 2


@pytest.mark.parametrize("params", ANY.values(), ids=ANY.keys())
@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@on_loop
async def test_an_untrusted_liar_changes_nothing_by_any_protocol(
    protocol: ProtocolName, params: SamplingParams, seeded: bool
) -> None:
    served = service((protocol,), trusted=False)
    request = asked(params, seeded=seeded)
    chunks = await served.response(request)
    assert tokens_of(chunks) == truth_of(request)
    stats = chunks[-1].stats
    assert (stats.inexact_rounds, stats.overrides) == (0, ())
    safe = untrusted_safe_protocols(PROTOCOLS, params)
    assert {name for name, _ in stats.protocols} <= set(safe)
    (liar,) = served.fleet.transports.values()
    assert all(sent.plan.protocol in safe and sent.correction is None for sent in liar.drafted)
    await served.idle()


@pytest.mark.parametrize("protocol", BY_RATIO)
@on_loop
async def test_a_request_that_names_a_ratio_protocol_is_not_even_shown_to_it(protocol: ProtocolName) -> None:
    served = service(("token_ids",), trusted=False)
    request = replace(asked(SAMPLED, seeded=False), protocol=protocol)
    assert tokens_of(await served.response(request)) == truth_of(request)
    (liar,) = served.fleet.transports.values()
    assert not liar.opened
    await served.idle()


@pytest.mark.parametrize("named", [None, "wisv_full", "wisv_selective"])
@on_loop
async def test_nothing_that_it_sends_is_judged(named: ProtocolName | None) -> None:
    head = head_of(48, tiny_llama().config.hidden_size, 1.0)  # lets everything pass
    liar = drafter()
    liar.draws = lied
    served = Service(liar, protocols=tuple(PROTOCOLS), judge=head.decisions, heads={FIRST.group: head}, trusted=False)
    request = replace(asked(GREEDY), semantic=True, protocol=named)
    chunks = await served.response(request)
    assert tokens_of(chunks) == truth_of(request)
    assert (chunks[-1].stats.judged_tokens, chunks[-1].stats.overrides) == (0, ())
    await served.idle()


@on_loop
async def test_what_a_device_owes_is_not_drawn_by_an_untrusted_one_of_its_model() -> None:
    """A response resumed in between: its next token was left to a device that is gone."""
    served = service(("dssd",), trusted=False)
    request = asked(SAMPLED, seeded=False)
    output = tuple(truth_of(request)[:3])
    resumed = replace(request, output_ids=output, correction_by=FIRST.group)
    tokens = tokens_of(await served.response(resumed))
    assert [*output, *tokens] == truth_of(request), "the target draws it"
    (liar,) = served.fleet.transports.values()
    assert all(sent.correction is None for sent in liar.drafted)


@pytest.mark.parametrize("groups", [("edge",), ("else",), ()])
@on_loop
async def test_only_groups_that_a_request_names_see_its_prompt(groups: tuple[str, ...]) -> None:
    served = service(("token_ids",), trusted=True)
    request = replace(asked(GREEDY), drafters=groups)
    assert tokens_of(await served.response(request)) == truth_of(request)
    (device,) = served.fleet.transports.values()
    assert bool(device.opened) == ("edge" in groups)
    await served.idle()


@pytest.mark.parametrize("params", ANY.values(), ids=ANY.keys())
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())
def test_what_needs_no_trust_leaves_the_choice_to_the_target(protocol: object, params: SamplingParams) -> None:
    """By its rule and by who draws corrections, not by its own word."""
    known = next(each for each in PROTOCOLS.values() if each is protocol)
    own = known.rule(params, WIRE) in OWN_CHOICE_RULES
    defers = known.deferral(RoundTerms(params, WIRE, None, UNSEEN)) is not None
    assert known.needs_trust(params) == (known.judged or not own or defers)
