"""Commit a verified round: to the response, its promise, what was learnt of acceptance, and its client."""

from dataclasses import replace

from outrider.contracts.verifying import Verified
from outrider.rounds.events import Measured, Send
from outrider.rounds.open_round import OpenRound
from outrider.rounds.parts import RoundParts


def commit_round(
    parts: RoundParts, round_: OpenRound, outcome: Verified, now_s: float, *, beside_draft: bool
) -> tuple[Measured, Send]:
    """Commit a round and return its timing and its chunk.

    ``beside_draft``: a device drafts meanwhile, so that the round says nothing about rounds without a draft.
    """
    generation, chooser, tracker = parts.generation, parts.chooser, parts.tracker
    round_.drafted_itself(outcome.own_draft)
    parts.emitter.explain_own_draft(chooser.choice, outcome.own_draft, round_.verified.autonomous_run)
    if not round_.by_lookup and not beside_draft:  # an n-gram draft says nothing about devices
        chooser.learn(
            round_.plan,
            round_.verified,
            outcome,
            round_.equal_tokens,
            round_.wrong_tokens,
            judged=not round_.unanswered,
            device_tokens=round_.device_tokens,
        )
    committed = generation.commit(outcome, round_.verified_draft(outcome, parts.rules.speculation.wire))
    tokens = len(committed.token_ids)
    tracker.committed(tokens, now_s)
    timing = round_.timing(outcome, round_.sent_tokens + tokens, now_s, chooser.mode)
    # A device's correction counts for the round that rejected a token, not for the one that it arrives with.
    yielded = tokens - len(round_.uncommitted) + (generation.correction_by is not None)
    judgement = tracker.judged(yielded, timing.total_s, timing.verify_s, first=generation.stats.rounds <= 1)
    if judgement is not None:
        generation.late(judgement.late)
        slo_class = generation.request.slo.name
        timing = replace(timing, slo_class=slo_class, late=judgement.late, behind=judgement.behind)
    parts.emitter.measured(timing, now_s)
    return Measured(timing), Send(parts.emitter.chunk(committed))
