from pathlib import Path

import numpy as np
import pytest
import torch

from lab.bench.harness.prompts import PROMPTS
from lab.bench.papers.coupling import Scheme
from lab.bench.papers.measured import Amount, Measured, Pair, PairRows, load_pair, measure, pair_rows
from lab.bench.papers.published import TSLT_LLM_S
from lab.bench.papers.tslt import RATIO_SCHEMES, protocol_bits, show_truncations, speed_ups_of
from outrider.contracts.requests import SamplingParams
from outrider.sampling.distributions import softmax
from outrider.training.traces import prompt_ids
from tests.unit.models.tiny_models import WORDS, save_model, tiny_model

VOCAB = WORDS + 1


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = save_model(tmp_path / "target", tiny_model("llama"))
    drafter = save_model(tmp_path / "drafter", tiny_model("llama", layers=1))
    return load_pair(str(target), str(drafter))


def test_rows_are_both_models_conditioned_on_the_same_response(pair: Pair) -> None:
    responses = list(pair_rows(pair, SamplingParams(), Amount(2, 6, seed=3)))
    again = list(pair_rows(pair, SamplingParams(), Amount(2, 6, seed=3)))
    assert len(responses) == 2
    for rows, same in zip(responses, again, strict=True):
        assert 1 <= len(rows.token_ids) <= 6
        assert rows.target_logits.shape == rows.draft_logits.shape == (len(rows.token_ids), VOCAB)
        assert rows.token_ids.tolist() == same.token_ids.tolist()
        assert np.array_equal(rows.draft_logits, same.draft_logits)


def test_rows_match_one_pass_over_prompt_and_response(pair: Pair) -> None:
    rows = next(pair_rows(pair, SamplingParams(temperature=0.0), Amount(1, 5)))
    prompt = prompt_ids(pair.target.tokenizer, PROMPTS[0])
    ids = torch.tensor([[*prompt, *rows.token_ids.tolist()]])
    for loaded, found in ((pair.target, rows.target_logits), (pair.drafter, rows.draft_logits)):
        whole = loaded.model(input_ids=ids).logits[0, len(prompt) - 1 : -1, :VOCAB].detach().numpy()
        assert found == pytest.approx(whole, abs=1e-4)
    assert rows.token_ids.tolist() == rows.target_logits.argmax(-1).tolist()


def test_rows_are_truncated_as_the_request_asks(pair: Pair) -> None:
    for rows in pair_rows(pair, SamplingParams(top_k=5), Amount(1, 4)):
        for logits in (rows.target_logits, rows.draft_logits):
            assert (np.isfinite(logits).sum(-1) == 5).all()
        assert np.isfinite(rows.target_logits[np.arange(len(rows.token_ids)), rows.token_ids]).all()


def measured(seed: int) -> Measured:
    generator = np.random.default_rng(seed)
    responses = [
        PairRows(
            generator.integers(VOCAB, size=8),
            generator.normal(size=(8, VOCAB)).astype(np.float32),
            generator.normal(size=(8, VOCAB)).astype(np.float32),
        )
        for _ in range(3)
    ]
    kept = [VOCAB, 4]
    schemes = dict.fromkeys(Scheme, kept)
    found = measure(responses, schemes, kept)
    first = softmax(responses[0].draft_logits)[0]
    assert found.top_mass[0][0] == pytest.approx([1.0, np.sort(first)[-4:].sum()])
    assert found.positions == 24
    return found


def test_truncations_keep_what_eq_20_promises(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(0)
    for count in (VOCAB, 4):
        single, replaced, distinct = (found.series[scheme, count].token_acceptance.mean for scheme in RATIO_SCHEMES)
        assert single <= replaced <= distinct + 1e-12
    show_truncations(found, measured(1), VOCAB, [VOCAB, 4])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] in (["4"], [str(VOCAB)])]
    assert [row[2] for row in rows] == [f"{VOCAB * 16:,}", str(4 * (16 + 6))]
    assert all(float(row[-1]) > -1e-12 for row in rows)


def test_protocols_are_charged_by_their_formulas() -> None:
    rows = {row.protocol: row for row in protocol_bits(measured(0), VOCAB, [VOCAB, 4])}
    assert rows["dsd"].up_bits_per_drafted == VOCAB * 16 + 6
    assert rows["tslt K=4"].up_bits_per_drafted == 4 * (16 + 6) + 6
    assert rows["tslt K=4"].down_bits_per_round == 6 + 2
    noise = rows["ours: token_ids, shared noise"]
    assert noise.bits_per_committed == pytest.approx((3 * 6 + 8) / noise.tokens_per_round)
    assert rows["dssd"].down_bits_per_round > 8
    assert list(rows)[3].startswith("ours: dssd_candidates, m=")


def test_speed_ups_grow_with_the_rate_up_to_the_compute_bound() -> None:
    found = measured(0)
    curves = {(curve.scheme, curve.kept): curve for curve in speed_ups_of(found, VOCAB, [VOCAB, 4])}
    assert len(curves) == 7
    for curve in curves.values():
        assert list(curve.speed_ups) == sorted(curve.speed_ups)
    chain, tree = curves[Scheme.SINGLE, 4], curves[Scheme.PAIR, 4]
    assert (chain.bits_per_round, tree.bits_per_round) == (3 * 4 * 22, 7 * 4 * 22)
    step_s = TSLT_LLM_S * (1.0 + 3 * 68 / 6740)
    assert chain.speed_ups[-1] == pytest.approx(chain.tokens_per_round * TSLT_LLM_S / (step_s + 264e-9))
    assert curves[Scheme.SHARED_NOISE, 0].bits_per_round == 3 * 6
