"""A small part of what ``python -m tests.chaos.mutated`` tries."""

from tests.chaos.mutated_frames import calls_and_frames
from tests.chaos.mutated_gateway import gateways
from tests.chaos.mutated_messages import calls, orders_and_answers, replies
from tests.chaos.mutated_sizes import sizes


def test_both_ends_of_a_link_refuse_what_was_mutated_and_go_on() -> None:
    counts = orders_and_answers(0, 6_000)
    assert counts.tried >= 6_000
    assert counts.understood < 6, "a checksum of 16 bits lets one in 65,536 through"


def test_replies_of_devices_are_read_or_refused() -> None:
    counts = replies(0, 6_000)
    assert 0 < counts.understood < counts.tried


def test_a_host_answers_mutated_calls_and_drafts_beside_them() -> None:
    counts = calls_and_frames(0, 6_000)
    assert 0 < counts.understood < counts.tried


def test_a_gateway_refuses_what_devices_and_others_mutate_and_relays_beside_it() -> None:
    counts = gateways(0, 3_000)
    assert 0 < counts.understood < counts.tried
    assert counts.let_in == counts.tried // 400, "one for 100 times four messages"


def test_a_verifier_refuses_a_mutated_call_s_part_and_no_other() -> None:
    assert calls(0, 600).tried >= 600


def test_replies_of_no_honest_size_are_refused_at_a_bounded_cost() -> None:
    assert sizes() == []
