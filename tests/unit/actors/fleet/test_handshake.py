"""A drafter that may not draft for the target is told why: what was needed, what was found, what to do."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.handshake import handshake_fault
from actors.messages import PROTOCOL_VERSION, ModelCard
from outrider.sampling.noise import NOISE_VERSION

TOKEN_MAP, MODEL = "a1b2c3d4e5f6" + "7" * 52, "0f1e2d3c4b5a" + "6" * 52
CARD = ModelCard("tiny", MODEL, TOKEN_MAP, vocab_size=97, eos_token_ids=(0,), max_context_tokens=256)


def test_a_drafter_made_for_the_target_may_join_first_or_later() -> None:
    assert handshake_fault(CARD, TOKEN_MAP, None) is None
    assert handshake_fault(CARD, TOKEN_MAP, MODEL) is None
    assert handshake_fault(replace(CARD, name="another name", max_context_tokens=8), TOKEN_MAP, MODEL) is None


@pytest.mark.parametrize(
    ("card", "needed", "found", "advice"),
    [
        ({"name": "tiny"}, "a model card", "a dict", "install the same version"),
        (None, "a model card", "a NoneType", "install the same version"),
        (replace(CARD, protocol_version=7), f"protocol version {PROTOCOL_VERSION}", "7", "install the same version"),
        (replace(CARD, noise_version=1), f"noise version {NOISE_VERSION}", "1", "install the same version"),
        (replace(CARD, token_map_hash="x" * 64), "token map a1b2c3d4e5f6", "x" * 12, "made for this target"),
        (replace(CARD, model_hash="y" * 64), "model 0f1e2d3c4b5a", "y" * 12, "copy the group's model"),
    ],
    ids=["no card", "nothing", "another version", "another noise", "another token map", "another model"],
)
def test_a_refusal_names_what_was_needed_and_found_and_what_to_do(
    card: object, needed: str, found: str, advice: str
) -> None:
    fault = handshake_fault(card, TOKEN_MAP, MODEL)
    assert fault is not None
    assert fault.startswith(f"needs {needed}")
    assert f", found {found};" in fault
    assert advice in fault.partition(";")[2]


def test_what_makes_every_other_check_meaningless_is_told_first() -> None:
    wrong: Any = ModelCard(
        "tiny", "another model", "another token map", 97, (), 256, protocol_version=0, noise_version=0
    )
    for repaired, told in (
        ({}, "protocol version"),
        ({"protocol_version": PROTOCOL_VERSION}, "noise version"),
        ({"noise_version": NOISE_VERSION}, "token map"),
        ({"token_map_hash": TOKEN_MAP}, "model"),
    ):
        wrong = replace(wrong, **repaired)
        assert (handshake_fault(wrong, TOKEN_MAP, MODEL) or "").startswith(f"needs {told}")


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@given(card=st.builds(ModelCard, *[ANYTHING] * 7), model_hash=st.none() | st.just(MODEL))
def test_whatever_a_card_says_there_is_an_answer(card: ModelCard, model_hash: str | None) -> None:
    fault = handshake_fault(card, TOKEN_MAP, model_hash)
    assert fault is not None
    assert fault.startswith("needs ")


def test_a_card_survives_the_journey() -> None:
    assert pickle.loads(pickle.dumps(CARD)) == CARD
