"""A drafter that may not draft for the target is told why: what was needed, what was found, what to do."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.handshake import handshake_fault
from outrider.versions import VERSIONS, VersionRange, Versions
from outrider.wire.replies import DrafterCard

TOKEN_MAP, MODEL = "a1b2c3d4e5f6" + "7" * 52, "0f1e2d3c4b5a" + "6" * 52
CARD = DrafterCard("tiny", MODEL, TOKEN_MAP, vocab_size=97, eos_token_ids=(0,), max_context_tokens=256)


def with_versions(**ranges: tuple[int, int]) -> DrafterCard:
    found = {name: VersionRange(*ends) for name, ends in ranges.items()}
    return replace(CARD, versions=replace(VERSIONS, **found))


def test_a_drafter_made_for_the_target_may_join_first_or_later() -> None:
    assert handshake_fault(CARD, TOKEN_MAP, None) is None
    assert handshake_fault(CARD, TOKEN_MAP, MODEL) is None
    assert handshake_fault(replace(CARD, name="another name", max_context_tokens=8), TOKEN_MAP, MODEL) is None


@pytest.mark.parametrize("protocol", [(6, 6), (6, 7), (7, 9), (0, 6)], ids=str)
def test_versions_are_ranges_so_the_last_releases_drafter_may_join(protocol: tuple[int, int]) -> None:
    assert handshake_fault(with_versions(protocol=protocol), TOKEN_MAP, MODEL) is None


@given(ours=st.tuples(*[st.integers(0, 9)] * 2), theirs=st.tuples(*[st.integers(0, 9)] * 2))
def test_the_highest_common_version_is_taken(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    both = [version for version in range(10) if all(VersionRange(*ends).has(version) for ends in (ours, theirs))]
    assert VersionRange(*ours).common(VersionRange(*theirs)) == (max(both) if both else None)


@pytest.mark.parametrize(
    ("card", "needed", "found", "advice"),
    [
        ({"name": "tiny"}, "a model card", "a dict", "install the same version"),
        (None, "a model card", "a NoneType", "install the same version"),
        (with_versions(protocol=(8, 9)), "protocol version 6..7", "8..9", "install the same version"),
        (with_versions(messages=(1, 1)), "messages version 2", "1", "install the same version"),
        (with_versions(noise=(1, 1)), "noise version 2", "1", "install the same version"),
        (with_versions(noise=(2, 3)), "noise version 2", "2..3", "install the same version"),
        (replace(CARD, token_map_hash="x" * 64), "token map a1b2c3d4e5f6", "x" * 12, "made for this target"),
        (replace(CARD, model_hash="y" * 64), "model 0f1e2d3c4b5a", "y" * 12, "copy the group's model"),
    ],
    ids=[
        "no card",
        "nothing",
        "another version",
        "other messages",
        "another noise",
        "newer noise",
        "another token map",
        "another model",
    ],
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
    others = Versions(VersionRange(0, 0), VERSIONS.messages, VersionRange(0, 0))
    wrong: Any = DrafterCard("tiny", "another model", "another token map", 97, (), 256, others)
    for repaired, told in (
        ({}, "protocol version"),
        ({"versions": replace(VERSIONS, noise=VersionRange(0, 0))}, "noise version"),
        ({"versions": VERSIONS}, "token map"),
        ({"token_map_hash": TOKEN_MAP}, "model"),
    ):
        wrong = replace(wrong, **repaired)
        assert (handshake_fault(wrong, TOKEN_MAP, MODEL) or "").startswith(f"needs {told}")


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@given(card=st.builds(DrafterCard, *[ANYTHING] * 6), model_hash=st.none() | st.just(MODEL))
def test_whatever_a_card_says_there_is_an_answer(card: DrafterCard, model_hash: str | None) -> None:
    fault = handshake_fault(card, TOKEN_MAP, model_hash)
    assert fault is not None
    assert fault.startswith("needs ")


def test_a_card_survives_the_journey() -> None:
    assert pickle.loads(pickle.dumps(CARD)) == CARD
