"""What is learned from is what rounds of whole blocks would have told."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import entropy

from lab.training.head.pair import LoadedPair, paged
from lab.training.predictor.drafted import DraftedTokens
from lab.training.predictor.rounds import Request, drafted_tokens, requests_of
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import PREDICTED_RULES
from outrider.sampling.noise import Purpose, gumbel_noise, uniforms
from tests.unit.lab.training.head.tiny_pairs import load
from tests.unit.models.tiny_models import EOS

WINDOW, LIMIT = 4, 18
TEMPERATURES = {"greedy": [0.0], "shared_noise": [0.7, 1.0], "ratio": [0.7, 1.0]}
PROMPTS = [[1 + number, (5 * number) % 40, 7] for number in range(12)]


@pytest.fixture(scope="module")
def models(folders: tuple[str, str]) -> LoadedPair:
    return load(folders)


def asked(rule: str) -> list[Request]:
    return requests_of(PROMPTS, TEMPERATURES[rule], LIMIT, seed=3)


def found(folders: tuple[str, str], rule: str, batch: int = 5, requests: list[Request] | None = None) -> DraftedTokens:
    pair = paged(load(folders), batch, 3 + LIMIT)
    tokens = drafted_tokens(pair, requests or asked(rule), AcceptanceRule(rule), window_tokens=WINDOW, batch=batch)
    assert pair.target.free_blocks == pair.target.total_blocks
    assert pair.drafter.free_blocks == pair.drafter.total_blocks
    return tokens


@torch.inference_mode()
def logits(models: LoadedPair, side: str, ids: list[int]) -> NDArray[np.float64]:
    """``[N, vocab]`` of a text, by one whole forward pass."""
    loaded = models.target if side == "target" else models.drafter
    rows: NDArray[np.float32] = loaded.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return rows[:, : loaded.vocab_size].astype(np.float64)


def features(probs: NDArray[np.float64], row: NDArray[np.float64]) -> list[float]:
    falling = np.sort(probs)[::-1]
    return [falling[0], float(entropy(probs)), falling[0] - falling[1], float(row.std())]


def by_blocks(models: LoadedPair, request: Request, rule: str) -> tuple[list[list[float]], list[int]]:
    """Features and labels of one response, written block by block: whole drafts first, then their verification."""
    params, text = request.params, list(request.prompt_ids)
    scale = params.temperature or 1.0
    stop = len(text) + LIMIT
    told: list[list[float]] = []
    labels: list[int] = []

    def chosen(row: NDArray[np.float64], position: int) -> int:
        noise = gumbel_noise(params.seed, position, Purpose.TARGET_TOKEN, len(row)) if params.temperature else 0.0
        return int((row / scale + noise).argmax())

    while len(text) < stop and text[-1] != EOS:
        start = len(text)
        drafted: list[tuple[int, NDArray[np.float64]]] = []
        about: list[list[float]] = []
        while len(drafted) < min(WINDOW, stop - start - 1):
            ids = [*text, *(token_id for token_id, _ in drafted)]
            row = logits(models, "drafter", ids)[-1]
            scaled = row / scale
            if rule == "ratio":  # as its message rounds it: the largest logit first moved to 0
                scaled = (row / scale - (row / scale).max()).astype(np.float16).astype(np.float64)
            probs = softmax(scaled)
            about.append(features(probs, scaled))
            if rule == "ratio":
                uniform = float(uniforms(params.seed, len(ids), Purpose.DRAFT_TOKEN, 1)[0])
                drafted.append((int(np.searchsorted(probs.cumsum(), uniform)), probs))
            else:
                drafted.append((chosen(row, len(ids)), probs))
        rows = logits(models, "target", [*text, *(token_id for token_id, _ in drafted)])[start - 1 :]
        for at, (token_id, probs) in enumerate(drafted):
            told.append(about[at])
            target = softmax(rows[at] / scale)
            if rule == "ratio":
                uniform = float(uniforms(params.seed, start + at, Purpose.ACCEPT, 1)[0])
                accepted = uniform * probs[token_id] < target[token_id]
            else:
                accepted = token_id == chosen(rows[at], start + at)
            labels.append(int(accepted))
            if not accepted:
                rest = np.maximum(target - probs, 0.0).cumsum()
                uniform = float(uniforms(params.seed, start + at, Purpose.RESIDUAL, 1)[0])
                correction = int(np.searchsorted(rest, uniform * rest[-1]))
                text.append(correction if rule == "ratio" else chosen(rows[at], start + at))
                break
            text.append(token_id)
            if token_id == EOS:
                break
        else:
            text.append(chosen(rows[len(drafted)], start + len(drafted)))
    return told, labels


@pytest.mark.parametrize("rule", list(PREDICTED_RULES))
def test_they_are_those_of_whole_blocks(folders: tuple[str, str], models: LoadedPair, rule: str) -> None:
    tokens = found(folders, rule)
    expected = [(request, *by_blocks(models, request, rule)) for request in asked(rule)]
    assert tokens.accepted.tolist() == [label for _, _, labels in expected for label in labels]
    assert tokens.prompt.tolist() == [request.prompt for request, _, labels in expected for _ in labels]
    assert tokens.temperature.tolist() == [one.params.temperature for one, _, labels in expected for _ in labels]
    told = np.array([row for _, rows, _ in expected for row in rows])
    assert tokens.features == pytest.approx(told, abs=2e-3)
    assert 0.1 < tokens.accepted.mean() < 0.95, "both kinds occur"


@pytest.mark.parametrize("batch", [1, 40])
def test_they_do_not_depend_on_what_is_written_beside_them(folders: tuple[str, str], batch: int) -> None:
    some = asked("ratio")[:6]
    one, other = found(folders, "ratio", batch, some), found(folders, "ratio", 4, some)
    assert one.accepted.tolist() == other.accepted.tolist()
    assert one.features == pytest.approx(other.features, abs=2e-3)


def test_no_two_requests_have_the_same_noise() -> None:
    assert len({one.params.seed for one in asked("ratio")}) == 2 * len(PROMPTS)


@pytest.mark.parametrize(
    ("rule", "temperature", "needed"), [("greedy", 0.7, "0 for the rule greedy"), ("ratio", 0.0, "above 0 for")]
)
def test_a_rule_that_is_not_there_at_a_temperature_is_named(
    folders: tuple[str, str], rule: str, temperature: float, needed: str
) -> None:
    with pytest.raises(ParameterError, match=f"temperatures needs {needed}"):
        found(folders, rule, requests=requests_of(PROMPTS, [temperature], LIMIT, seed=0))
