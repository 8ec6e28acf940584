"""Calls of a drafter's methods as bytes: what is written is read, and anything else is refused by an error of ours."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import DraftTerms
from outrider.contracts.errors import MessageError
from outrider.contracts.exchanged import FloatField, WireFormat
from outrider.contracts.requests import MAX_SEED, Grammar, SamplingParams
from outrider.contracts.verifying import OpenGeneration
from outrider.versions import VERSIONS
from outrider.wire.calls import FIRST_VERSION, MOST_CALL_BYTES, read_call, write_call
from outrider.wire.replies import DrafterHoldings, UnreadableReplyError, plain, read_reply

NAMES = st.text(st.characters(codec="utf-8"), max_size=200)
VOCAB = 49_152
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=40).map(tuple)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0.0, 2.0),
    top_p=st.floats(0.0, 1.0, exclude_min=True),
    top_k=st.integers(0, 2**32 - 1),
    min_p=st.floats(0.0, 1.0),
    repetition_penalty=st.floats(0.0, 10.0, exclude_min=True),
    presence_penalty=st.floats(-2.0, 2.0),
    frequency_penalty=st.floats(-2.0, 2.0),
    logit_bias=st.lists(st.tuples(st.integers(0, VOCAB - 1), st.floats(-100.0, 100.0)), max_size=9).map(tuple),
    withheld_ids=IDS,
    withheld_until=st.integers(0, 2**31),
    seed=st.integers(0, MAX_SEED),
)
FIELDS = st.sampled_from(FloatField)
WIRES = st.builds(
    WireFormat,
    vocab_size=st.just(VOCAB),
    logit_field=FIELDS,
    scalar_bits=st.integers(8, 32),
    row_field=FIELDS,
    top_k=st.integers(0, 2**20),
    top_rho=st.floats(0.0, 1.0, exclude_min=True),
    distinct_siblings=st.booleans(),
    hidden_field=FIELDS,
    hidden_width=st.integers(0, 2**20),
)
REQUESTS = st.builds(
    OpenGeneration,
    generation=NAMES,
    prompt_ids=IDS.filter(len),
    params=PARAMS,
    output_ids=IDS,
    cache_salt=st.binary(max_size=64),
)
TERMS = st.builds(DraftTerms, wire=WIRES, end_ids=IDS, last_position=st.integers(0, 2**31))
ARGUMENTS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    **dict.fromkeys(("card", "prove", "held"), st.just(())),
    "open": st.tuples(REQUESTS, TERMS),
    "exchange": st.tuples(NAMES, st.binary(max_size=99)),
    "probe": st.tuples(st.binary(max_size=99), st.integers(0, 2**26)),
    "close": st.tuples(NAMES),
}
OPENING = OpenGeneration("g", (5, 17), SamplingParams(temperature=0.5, seed=3))
OPEN = write_call("open", OPENING, DraftTerms(WireFormat(VOCAB)))
BIASED = SamplingParams(logit_bias=((1, 0.5),) * 4097)
CALLS = st.sampled_from(tuple(ARGUMENTS)).flatmap(lambda method: st.tuples(st.just(method), ARGUMENTS[method]))


@given(call=CALLS, version=st.integers(FIRST_VERSION, VERSIONS.protocol.newest))
def test_what_is_written_is_read(call: tuple[str, tuple[Any, ...]], version: int) -> None:
    method, arguments = call
    assert read_call(write_call(method, *arguments, version=version)) == (method, arguments)


@given(version=st.integers(0, 255))
def test_a_card_is_asked_for_alike_and_read_in_every_version(version: int) -> None:
    """Or two releases could not tell each other that they have no version in common."""
    assert write_call("card", version=version) == bytes([FIRST_VERSION, 0])
    assert read_call(bytes([version, 0])) == ("card", ())


@given(call=CALLS, place=st.integers(0), flipped=st.integers(1, 255), cut=st.integers(0, 8), more=st.binary(max_size=9))
def test_a_damaged_call_is_another_or_refused(
    call: tuple[str, tuple[Any, ...]], place: int, flipped: int, cut: int, more: bytes
) -> None:
    data = bytearray(write_call(call[0], *call[1]))
    data[place % len(data)] ^= flipped
    try:
        method, arguments = read_call(bytes(data[: len(data) - cut]) + more)
    except MessageError:
        return
    write_call(method, *arguments)


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda rest: bytes([7, 3]) + rest))
def test_any_bytes_are_a_call_or_refused(data: bytes) -> None:
    try:
        method, _ = read_call(data)
    except MessageError:
        return
    assert method in ARGUMENTS


@pytest.mark.parametrize(
    ("data", "needed"),
    [
        (b"", "a call of 2.."),
        (bytes([7]), "a call of 2.."),
        (bytes(MOST_CALL_BYTES + 1), "a call of 2.."),
        (bytes([6, 1]), "calls of version 7, found 6"),
        (bytes([8, 1]), "calls of version 7, found 8"),
        (bytes([7, 99]), "a method in 0..6, found 99"),
        (bytes([7, 0, 0]), "no arguments, found 1 bytes"),
        (bytes([7, 6]), "the arguments of close"),
        (bytes([7, 6, 255, 255]) + bytes(70_000), "a name of at most 800 bytes"),
        (bytes([7, 6, 0, 9, 65]), "a name of at most 800 bytes"),
        (bytes([7, 6, 0, 201]) + b"A" * 201, "a name of at most 200 characters, found 201"),
        (bytes([7, 6, 0, 1, 255]), "the arguments of close"),
        (bytes([7, 5, 255, 255, 255, 255]), "a probe of at most 67108864 bytes"),
        (OPEN[:-1], "truncated|padding"),
        (OPEN + b"x", "oversized"),
    ],
)
def test_what_is_no_call_is_told(data: bytes, needed: str) -> None:
    with pytest.raises(MessageError, match=needed):
        read_call(data)


@pytest.mark.parametrize("letter", ["a", "ü", "\U00010348"])
def test_a_name_that_is_sent_may_be_told_as_held(letter: str) -> None:
    """Calls and replies have one bound, of characters."""
    longest = letter * 200
    assert read_call(write_call("close", longest)) == ("close", (longest,))
    assert read_reply(plain(DrafterHoldings((longest,)))) == DrafterHoldings((longest,))
    with pytest.raises(MessageError, match="at most 200 characters, found 201"):
        write_call("close", longest + "a")
    with pytest.raises(UnreadableReplyError):
        read_reply(plain(DrafterHoldings((longest + "a",))))


@pytest.mark.parametrize(
    ("request_", "terms", "needed"),
    [
        (replace(OPENING, prompt_ids=()), DraftTerms(WireFormat(VOCAB)), "at least one"),
        (OPENING, DraftTerms(WireFormat(VOCAB, scalar_bits=7)), "8..32 bits"),
        (OPENING, DraftTerms(WireFormat(VOCAB, version=15)), "messages of version 2, found 15"),
        (replace(OPENING, cache_salt=bytes(65)), DraftTerms(WireFormat(VOCAB)), "a salt of at most 64"),
        (
            replace(OPENING, params=SamplingParams(logit_bias=((1, 0.5),) * 4097)),
            DraftTerms(WireFormat(VOCAB)),
            "biases",
        ),
    ],
    ids=["no prompt", "bits", "version", "salt", "biases"],
)
def test_what_nothing_may_have_is_refused(request_: OpenGeneration, terms: DraftTerms, needed: str) -> None:
    with pytest.raises(MessageError, match=needed):
        read_call(write_call("open", request_, terms))


def test_a_device_is_told_only_what_drafting_needs() -> None:
    asked = replace(OPENING, logprobs=3, prompt_logprobs=True, tenant="alice", trace_id="t", account="a")
    assert read_call(write_call("open", asked, DraftTerms(WireFormat(VOCAB))))[1][0] == OPENING
    grammar = replace(OPENING, params=replace(OPENING.params, grammar=Grammar("x")))
    with pytest.raises(MessageError, match="without a grammar"):
        write_call("open", grammar, DraftTerms(WireFormat(VOCAB)))


def test_numbers_beyond_any_use_are_written_as_the_largest() -> None:
    huge = replace(OPENING, params=replace(OPENING.params, top_k=2**40))
    request, terms = read_call(write_call("open", huge, DraftTerms(WireFormat(VOCAB), last_position=2**50)))[1]
    assert (request.params.top_k, terms.last_position) == (2**32 - 1, 2**32 - 1)


def test_every_field_of_a_generation_is_told_or_known_not_to_be() -> None:
    """A new one has to be decided about."""
    assert {field.name for field in fields(OpenGeneration)} == {
        *("generation", "prompt_ids", "params", "output_ids", "cache_salt"),
        *("logprobs", "prompt_logprobs", "tenant", "trace_id", "account"),
    }
    assert len(fields(SamplingParams)) == 12
    assert len(fields(WireFormat)) == 10
    assert len(fields(DraftTerms)) == 3


def test_no_more_tokens_are_withheld_than_biased() -> None:
    opening = replace(OPENING, params=SamplingParams(withheld_ids=tuple(range(4097)), withheld_until=9))
    with pytest.raises(MessageError, match="at most 4096 tokens withheld, found 4097"):
        read_call(write_call("open", opening, DraftTerms(WireFormat(VOCAB))))
