from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.accounts import Account
from outrider.contracts.errors import ParameterError
from outrider.contracts.requests import SAMPLING_RANGES, GenerationRequest, SamplingParams
from outrider.contracts.slo import SloClass
from serve_app.api.openai.bodies import ChatMessage
from serve_app.api.openai.choices import choice_seed
from serve_app.api.openai.tools.request import with_tools
from serve_app.api.service import RequestLimits
from tests.unit.serve_app.api.asked_choices import SEED, choices, generation
from tests.unit.serve_app.api.text_service import LIMITS, TOKENIZER

IDS = TOKENIZER.encode("Once upon")


def test_a_bare_request_takes_openais_defaults() -> None:
    assert generation() == GenerationRequest(
        generation="g-0",
        prompt_ids=tuple(IDS),
        params=SamplingParams(seed=SEED),
        max_tokens=16,
        reproducible=False,
        request_id="r",
    )


def test_every_parameter_arrives() -> None:
    sampling: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 2.0,
    }
    assert sampling.keys() == SAMPLING_RANGES.keys()
    params = SamplingParams(**sampling, logit_bias=((7, -100.0), (50, 1.5)), seed=12)
    asked = generation(
        **sampling,
        logit_bias={"50": 1.5, "7": -100},
        seed=12,
        max_tokens=9,
        stop=["a", "b\n"],
        min_tokens=9,
        ignore_eos=True,
        logprobs=20,
        outrider={
            "window": 3,
            "protocol": "token_ids",
            "expansion": [2, 1, 1],
            "lookup": 5,
            "slo_class": "speed_6",
            "explain": True,
        },
        user="someone",
    )
    assert asked == replace(
        generation(),
        params=params,
        max_tokens=9,
        stop=("a", "b\n"),
        min_tokens=9,
        ignore_eos=True,
        logprobs=20,
        window=3,
        protocol="token_ids",
        expansion=(2, 1, 1),
        lookup=5,
        account=Account(user=asked.tenant),
        tenant=asked.tenant,
        explain=True,
        slo=SloClass("speed_6", 6.0),
        reproducible=True,
    )


@pytest.mark.parametrize("slo", LIMITS.slo_classes, ids=lambda slo: slo.name)
def test_every_choice_is_promised_the_speed_of_the_class_that_is_named(slo: SloClass) -> None:
    made = choices(prompt=["Once upon", "A"], n=2, outrider={"slo_class": slo.name})
    assert [choice.request.slo for choice in made] == [slo] * 4
    assert generation(chat=True, outrider={"slo_class": slo.name}).slo == slo


def test_who_names_no_class_has_the_first_one() -> None:
    assert {choice.request.slo for choice in choices(n=2)} == {LIMITS.slo_classes[0]}
    assert generation(outrider={"slo_class": None}).slo == generation().slo == LIMITS.slo_classes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "carrier_pigeon"}, r"outrider.protocol needs one of token_ids, dsd, .* found 'carrier_pigeon'"),
        ({"expansion": [2, 2], "window": 2}, r"outrider.expansion needs outrider.protocol token_ids or tslt_tree"),
        ({"protocol": "tslt_tree", "expansion": [2, 2]}, r"as many numbers >= 1 as outrider.window \(None\)"),
        ({"protocol": "tslt_tree", "expansion": [2, 0], "window": 2}, r"as many numbers >= 1 .* found \[2, 0\]"),
        ({"protocol": "tslt_tree", "expansion": [4, 4], "window": 2}, r"a tree of at most 16 tokens, found 20"),
        ({"protocol": "tslt_tree", "rows": 4, "window": 2}, r"outrider.rows needs outrider.protocol token_ids, found"),
        (
            {"protocol": "token_ids", "rows": 4},
            r"outrider.rows needs an integer of outrider.window \(None, at least 1\)",
        ),
        ({"protocol": "token_ids", "rows": 17, "window": 2}, r"\(2, at least 1\) to 16, found 17"),
        ({"protocol": "token_ids", "rows": 1, "window": 2}, r"\(2, at least 1\) to 16, found 1"),
        ({"protocol": "token_ids", "rows": 2, "window": 1, "expansion": [2]}, r"no outrider.expansion beside it"),
    ],
)
def test_what_cannot_be_drafted_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        generation(outrider=options)


def test_trees_may_be_left_to_grow() -> None:
    asked = generation(outrider={"protocol": "token_ids", "window": 4, "rows": 8})
    assert asked == replace(generation(), protocol="token_ids", window=4, rows=8)


@pytest.mark.parametrize(("asked", "tokens"), [(None, None), (True, 8), (False, 0), (0, 0), (1, 1), (64, 64)])
def test_what_is_looked_up_may_be_asked_for(asked: object, tokens: int | None) -> None:
    assert generation(outrider={"lookup": asked}).lookup == tokens
    assert generation().lookup is None


@pytest.mark.parametrize("asked", [-1, 65, 1.5, "yes"])
def test_a_lookup_that_is_none_is_refused(asked: object) -> None:
    with pytest.raises(ParameterError, match=r"^outrider.lookup needs true, false or an integer in 0\.\.64, found"):
        generation(outrider={"lookup": asked})


def test_tenants_are_told_apart_by_who_asks_and_not_by_name() -> None:
    one, other = generation(user="one").tenant, generation(user="other").tenant
    assert len({one, other, generation().tenant}) == 3
    assert generation().tenant == "", "nobody's"
    assert "one" not in one
    assert generation(safety_identifier="one").tenant == one
    assert generation(user="other", safety_identifier="one").tenant == one


TRUST = replace(LIMITS, drafters={"here": True, "there": False})
NONE_TRUSTED = replace(LIMITS, drafters={"there": False})


def test_a_request_may_name_a_protocol_that_the_operator_allows_and_no_other() -> None:
    allowed = replace(LIMITS, protocols=("token_ids", "tslt"))
    assert generation(outrider={"protocol": "tslt"}, limits=allowed).protocol == "tslt"
    with pytest.raises(ParameterError, match=r"outrider.protocol needs one of token_ids, tslt, found 'dsd'"):
        generation(outrider={"protocol": "dsd"}, limits=allowed)


@pytest.mark.parametrize("protocol", ["dsd", "tslt", "tslt_tree", "dssd", "dssd_candidates"])
def test_what_needs_trust_may_be_named_where_a_trusted_group_may_draft_for_it(protocol: str) -> None:
    asked = {"protocol": protocol, "window": 2}
    assert generation(outrider=asked, limits=TRUST).protocol == protocol
    assert generation(temperature=0, outrider=asked, limits=NONE_TRUSTED).protocol == protocol, "it is the target's own"
    refused = r"outrider.protocol needs one of token_ids, as none of its drafters is trusted, found"
    with pytest.raises(ParameterError, match=refused):
        generation(outrider=asked, limits=NONE_TRUSTED)
    with pytest.raises(ParameterError, match=refused):
        generation(outrider=asked | {"drafters": ["there"]}, limits=TRUST)
    assert generation(outrider={"protocol": "token_ids"}, limits=NONE_TRUSTED).protocol == "token_ids"


def test_who_may_see_a_prompt_is_its_senders_to_say() -> None:
    assert generation(limits=TRUST).drafters is None
    assert generation(outrider={"drafters": ["here", "here"]}, limits=TRUST).drafters == ("here",)
    assert generation(outrider={"drafters": []}, limits=TRUST).drafters == ()
    with pytest.raises(
        ParameterError, match=r"outrider.drafters needs names of drafter groups \(here, there\), found 'x'"
    ):
        generation(outrider={"drafters": ["x"]}, limits=TRUST)


def test_a_named_seed_asks_for_the_targets_own_tokens() -> None:
    with pytest.raises(ParameterError, match=r"outrider.protocol needs token_ids with a seed, .* 'tslt'"):
        generation(seed=3, outrider={"protocol": "tslt"})
    assert generation(seed=3, temperature=0, outrider={"protocol": "tslt"}).protocol == "tslt"
    assert generation(seed=3).reproducible
    assert not generation().reproducible


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_signed_seed_is_taken_as_its_64_bits(seed: int) -> None:
    taken = generation(seed=seed).params.seed
    assert taken.to_bytes(8, "big") == seed.to_bytes(8, "big", signed=True)


def test_more_top_k_than_tokens_keeps_them_all() -> None:
    assert generation(top_k=LIMITS.vocab_size - 1).params.top_k == LIMITS.vocab_size - 1
    assert generation(top_k=LIMITS.vocab_size).params.top_k == 0
    assert generation(top_k=10**300).params.top_k == 0


@pytest.mark.parametrize("prompt", ["Once upon", ["Once upon"], IDS, [IDS]])
def test_a_prompt_is_a_text_or_tokens(prompt: object) -> None:
    assert generation(prompt=prompt).prompt_ids == tuple(IDS)


@pytest.mark.parametrize("text", ["Hello", "two\nlines", "漢字 🦊", "spelt <|im_end|> special", " x ", ""])
def test_chats_are_tokenised_as_the_model_was_trained(text: str) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]
    expected = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert generation(messages=messages).prompt_ids == tuple(expected)


def test_a_developer_is_the_system_to_a_template_that_knows_none() -> None:
    def ids_of(role: str) -> tuple[int, ...]:
        messages = [{"role": role, "content": "Be kind."}, {"role": "user", "content": "Hello"}]
        return generation(messages=messages).prompt_ids

    assert ids_of("developer") == ids_of("system") != ids_of("user")


@pytest.mark.parametrize(
    ("template", "role"), [("{% if role == 'developer' %}", "developer"), ("{# of its developers #}", "system")]
)
def test_a_template_that_knows_developers_is_told_of_them(template: str, role: str) -> None:
    (message,) = with_tools([ChatMessage(role="developer", content="Be kind.")], (), template, "")
    assert message == {"role": role, "content": "Be kind."}


def test_parts_of_a_message_are_joined_by_newlines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    in_parts = generation(messages=[{"role": "user", "content": parts}])
    assert in_parts == generation(messages=[{"role": "user", "content": "a\nb"}])


def test_a_chat_may_fill_the_context_and_a_completion_has_16_tokens() -> None:
    room = LIMITS.max_context_tokens - len(generation(chat=True).prompt_ids)
    assert generation(chat=True).max_tokens == min(room, LIMITS.max_output_tokens)
    long_prompt = [5] * (LIMITS.max_context_tokens - 2)
    assert generation(prompt=long_prompt).max_tokens == 2
    assert generation(chat=True, max_completion_tokens=4).max_tokens == 4
    assert generation(chat=True, max_completion_tokens=4, max_tokens=4).max_tokens == 4


def test_choices_are_prompt_major_and_each_has_its_own_name_and_seed() -> None:
    made = choices(prompt=["Once upon", "A"], n=3, seed=7)
    assert [choice.index for choice in made] == list(range(6))
    assert [choice.request.generation for choice in made] == [f"g-{i}" for i in range(6)]
    assert [choice.request.prompt_ids for choice in made] == [tuple(IDS)] * 3 + [tuple(TOKENIZER.encode("A"))] * 3
    assert [choice.request.params.seed for choice in made] == [choice_seed(7, i) for i in range(3)] * 2
    assert [choice.first_of_prompt for choice in made] == [True, False, False] * 2
    assert made[0].request == generation(seed=7)
    alike = [replace(choice.request, generation="g-0", params=made[0].request.params) for choice in made[:3]]
    assert alike == [made[0].request] * 3


def test_as_many_choices_as_allowed() -> None:
    assert len(choices(prompt=["a"] * 4, n=16)) == len(choices(prompt=[[5]] * 64)) == 64
    assert len(choices(n=2, best_of=2)) == len(choices(n=2, best_of=1)) == len(choices(chat=1, n=2)) == 2


@given(st.integers(0, 2**64 - 1))
def test_choices_differ_in_their_seeds(seed: int) -> None:
    seeds = [choice_seed(seed, i) for i in range(16)]
    assert seeds[0] == seed
    assert len(set(seeds)) == 16
    assert all(0 <= other < 2**64 for other in seeds)


def test_seeds_of_choices_do_not_change_with_versions() -> None:
    assert choice_seed(5, 1) == 6170373840279617265


def test_logprobs_are_asked_for_by_each_endpoint_in_its_way() -> None:
    assert generation().logprobs is None
    assert generation(logprobs=0).logprobs == 0
    assert generation(chat=1, logprobs=False).logprobs is None
    assert generation(chat=1, logprobs=True).logprobs == 0
    assert generation(chat=1, logprobs=True, top_logprobs=5).logprobs == 5


@pytest.mark.parametrize(("logprobs", "scored"), [(None, False), (0, True), (2, True)])
def test_an_echo_is_scored_if_logprobs_are_asked_for(logprobs: int | None, *, scored: bool) -> None:
    (choice,) = choices(echo=True, logprobs=logprobs)
    assert (choice.echo, choice.request.prompt_logprobs) == ("Once upon", scored)
    assert not generation(logprobs=logprobs).prompt_logprobs


@pytest.mark.parametrize(
    ("prompt", "text"), [("<|im_end|> x", "<|im_end|> x"), ([2, *IDS], "<|im_end|>Once upon"), ([10813], "\ufffd")]
)
def test_an_echo_is_the_text_as_sent_or_what_the_ids_spell(prompt: object, text: str) -> None:
    (choice,) = choices(prompt=prompt, echo=True)
    assert choice.echo == text


def test_an_echo_alone_makes_a_token_that_is_not_shown() -> None:
    (only_echo,) = choices(echo=True, max_tokens=0)
    assert (only_echo.shows_output, only_echo.request.max_tokens) == (False, 1)
    assert choices(echo=True, max_tokens=1)[0].shows_output


JUDGED = replace(LIMITS, judges=True)
SEMANTIC = {"verification": "semantic"}


def test_mismatches_are_judged_only_where_a_request_says_so() -> None:
    assert not generation(temperature=0.0).semantic
    assert generation(temperature=0.0, outrider=SEMANTIC, limits=JUDGED).semantic
    assert not generation(temperature=0.0, outrider={"verification": "lossless"}, limits=JUDGED).semantic
    named = generation(temperature=0.0, outrider=SEMANTIC | {"protocol": "wisv_full"}, limits=JUDGED)
    assert (named.protocol, named.semantic) == ("wisv_full", True)


def test_a_class_may_allow_it_for_its_greedy_responses() -> None:
    limits = replace(JUDGED, slo_classes=(SloClass("best_effort"), SloClass("fast", 6.0, semantic=True)))
    fast = {"slo_class": "fast"}
    assert generation(temperature=0.0, outrider=fast, limits=limits).semantic
    assert not generation(temperature=0.7, outrider=fast, limits=limits).semantic
    assert not generation(temperature=0.0, outrider=fast | {"verification": "lossless"}, limits=limits).semantic
    assert not generation(temperature=0.0, outrider=fast, limits=replace(limits, judges=False)).semantic


@pytest.mark.parametrize(
    ("options", "temperature", "limits", "said"),
    [
        (SEMANTIC, 0.0, LIMITS, "outrider.verification needs lossless, as no trusted drafter here has a decision head"),
        (SEMANTIC, 0.5, JUDGED, "outrider.verification needs lossless, or temperature 0"),
        (
            {"protocol": "wisv_full"},
            0.0,
            JUDGED,
            "outrider.protocol needs a lossless one, or outrider.verification semantic",
        ),
        ({"protocol": "wisv_selective"}, 0.0, LIMITS, "outrider.protocol needs a lossless one"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    options: dict[str, str], temperature: float, limits: RequestLimits, said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        generation(temperature=temperature, outrider=options, limits=limits)


LARGE = replace(LIMITS, max_context_tokens=131_072, max_output_tokens=131_071)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"n": 16, "max_tokens": 62_501}, "1000016 tokens in 16 choices, x 1"),
        ({"n": 1, "max_tokens": 45_455, "logprobs": 20}, "45455 tokens in 1 choices, x 22"),
        ({"max_tokens": 100_000, "prompt": ["a"] * 11}, "1100000 tokens in 11 choices, x 1"),
        (
            {"max_tokens": 0, "echo": True, "prompt": [[5] * 50_000], "logprobs": 20},
            "of the echoed prompt included, x 22",
        ),
        ({"n": 4, "max_tokens": 130_000, "outrider": {"details": True}}, "520000 tokens in 4 choices, x 2"),
        ({"chat": 1, "max_tokens": 100_000, "logprobs": True, "top_logprobs": 9}, "100000 tokens in 1 choices, x 11"),
    ],
)
def test_what_a_request_may_cost_is_bounded(fields: dict[str, Any], found: str) -> None:
    with pytest.raises(
        ParameterError, match=r"^max_tokens needs choices x tokens x values .* at most 1000000"
    ) as raised:
        choices(limits=replace(LARGE, strict_fields=True), **fields)
    assert found in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({"n": 16, "max_tokens": 62_500}, 62_500),
        ({"max_tokens": 45_454, "logprobs": 20}, 45_454),
        ({"max_tokens": 131_069}, 131_069),
        ({"chat": 1, "n": 16}, 62_500),  # where it is not named, as many as may be
        ({"chat": 1, "logprobs": True, "top_logprobs": 20}, 45_454),
    ],
)
def test_what_costs_as_much_as_may_be_is_made(fields: dict[str, Any], max_tokens: int) -> None:
    assert {choice.request.max_tokens for choice in choices(limits=LARGE, **fields)} == {max_tokens}
