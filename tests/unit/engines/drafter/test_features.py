"""Draft features against their definitions in float64."""

import math
from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.drafting import DraftFeatures
from outrider.engines.drafter import engine as engine_module
from outrider.engines.drafter.features import draft_features, to_draft_features
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, draft_of


@given(rows=st.lists(st.lists(st.floats(-60, 60, width=32), min_size=7, max_size=7), min_size=1, max_size=4))
def test_features_are_what_their_names_say(rows: list[list[float]]) -> None:
    logits = np.array(rows)
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    ordered = np.sort(probs, axis=1)
    entropy = -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=1)
    expected = np.stack([ordered[:, -1], entropy, ordered[:, -1] - ordered[:, -2], logits.std(axis=1)], axis=1)
    found = draft_features(torch.tensor(rows))
    assert found.shape == (len(rows), 4)
    assert found.dtype == torch.float32
    assert found.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_equal_logits_are_as_uncertain_as_can_be() -> None:
    (features,) = to_draft_features(draft_features(torch.full((1, 50_000), 3.0)))
    assert features.confidence == pytest.approx(1 / 50_000, rel=1e-4)
    assert features.entropy_nats == pytest.approx(math.log(50_000), rel=1e-4)
    assert (features.margin, features.logit_std) == (0.0, 0.0)


def test_one_overwhelming_logit_is_certain() -> None:
    (features,) = to_draft_features(draft_features(torch.tensor([[0.0, 1e4, 0.0]])))
    assert features == DraftFeatures(1.0, 0.0, 1.0, features.logit_std)
    assert features.logit_std == pytest.approx(1e4 * math.sqrt(2) / 3, rel=1e-5)


@given(seed=st.integers(0, 2**32), shift=st.floats(-100, 100))
def test_a_constant_added_to_all_logits_changes_nothing(seed: int, shift: float) -> None:
    logits = torch.randn(2, 100, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(draft_features(logits), draft_features(logits + shift), rtol=1e-3, atol=1e-4)


def test_half_precision_logits_are_measured_in_float32() -> None:
    logits = torch.randn(3, 100).bfloat16()
    assert torch.equal(draft_features(logits), draft_features(logits.float()))


def test_no_rows_give_no_features() -> None:
    assert to_draft_features(draft_features(torch.zeros(0, 10))) == ()


def test_an_engine_computes_the_features_of_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def counted(logits: torch.Tensor) -> torch.Tensor:
        rows.append(len(logits))
        return draft_features(logits)

    monkeypatch.setattr(engine_module, "draft_features", counted)
    engine, asking, silent = torch_drafter(tiny_llama()), Device("a", GREEDY), Device("b", SAMPLED)
    for device in (asking, silent):
        engine.open(device.opening(), TERMS)
    assert draft_of(engine, silent.request(4)).features == ()
    assert rows == [], "nothing is computed where nobody asks"
    logits = [asking.logits()]
    engine.submit(silent.request(3))
    draft = draft_of(engine, asking.request(2, want_features=True))
    logits.append(asking.logits(draft.token_ids[:1]))
    assert rows == [1, 1], "one row of each pass"
    expected = to_draft_features(draft_features(torch.tensor(np.array(logits))))
    for found, wanted in zip(draft.features, expected, strict=True):
        assert astuple(found) == pytest.approx(astuple(wanted), abs=1e-4)
