"""What an engine tells of its chains to whoever logs them: rows as they were drawn from, and what became of tokens."""

from collections.abc import Sequence

import numpy as np
import pytest

from outrider.contracts.requests import ProtocolName, SamplingParams
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import ConfidenceLogistic
from outrider.drafting.features import DraftFeatures
from outrider.drafting.round_log import LoggedRound, logged_round
from outrider.drafting.stopping import Stops
from outrider.drafting.stops import SendAndStop, StopBefore
from outrider.engines.drafter.engine import TorchDrafter
from tests.unit.drafting.always import Always
from tests.unit.engines.conftest import tiny_llama, torch_drafter
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, answer_to, draft_of

WINDOW = 4


class Logging:
    """A device that logs, of one generation."""

    def __init__(
        self, params: SamplingParams, protocol: ProtocolName = "token_ids", stops: Stops | None = None
    ) -> None:
        self.rounds: list[LoggedRound] = []
        self.rules: list[AcceptanceRule] = []
        self.engine: TorchDrafter = torch_drafter(tiny_llama(), stops=stops, on_verdict=self.note)
        self.device = Device("a", params, protocol=protocol)
        self.engine.open(self.device.opening(), TERMS)

    def note(self, generation: str, verdict: object) -> None:
        assert generation == "a"
        self.rules.append(verdict.sent_chain.rule)  # type: ignore[attr-defined]
        if (found := logged_round(generation, verdict)) is not None:  # type: ignore[arg-type]
            self.rounds.append(found)

    def drafted(self, window: int = WINDOW) -> tuple[int, ...]:
        return draft_of(self.engine, self.device.request(window)).token_ids

    def commit(self, token_ids: Sequence[int]) -> None:
        self.device.tokens += token_ids
        answer_to(self.engine, self.device.request(0))


def other(token_id: int) -> int:
    return token_id + 1 if token_id < 20 else token_id - 1


def features_of(device: Device, path: Sequence[int]) -> list[float]:
    """Of the model's own row behind the committed tokens and a path, which has the temperature in it already."""
    logits = device.logits(path).astype(np.float64)
    probs = np.exp(logits - logits.max())
    vector: list[float] = DraftFeatures(probs / probs.sum()).vector.tolist()
    return vector


@pytest.mark.parametrize(
    ("params", "protocol", "rule"),
    [
        (GREEDY, "token_ids", AcceptanceRule.GREEDY),
        (SAMPLED, "token_ids", AcceptanceRule.SHARED_NOISE),
        (SAMPLED, "dsd", AcceptanceRule.RATIO),
    ],
)
def test_rows_are_described_as_the_model_gives_them_though_its_rule_asks_for_nothing(
    params: SamplingParams, protocol: ProtocolName, rule: AcceptanceRule
) -> None:
    logging = Logging(params, protocol)
    drafted = logging.drafted()
    assert len(drafted) == WINDOW
    expected = [features_of(logging.device, drafted[:depth]) for depth in range(3)]
    logging.commit([*drafted[:2], other(drafted[2])])
    (found,) = logging.rounds
    assert logging.rules == [rule]
    assert np.allclose(found.features, expected, rtol=2e-3, atol=2e-3)
    assert (found.rejected, found.temperature) == (True, params.temperature)


def test_who_logs_drafts_what_it_would_have_drafted() -> None:
    for params, protocol in ((GREEDY, "token_ids"), (SAMPLED, "token_ids"), (SAMPLED, "dsd"), (SAMPLED, "dssd")):
        plain = Device("a", params, protocol=protocol)
        engine = torch_drafter(tiny_llama())
        engine.open(plain.opening(), TERMS)
        assert Logging(params, protocol).drafted() == draft_of(engine, plain.request(WINDOW)).token_ids


def test_a_whole_chain_has_no_rejection_and_a_repeated_order_is_logged_once() -> None:
    logging = Logging(SAMPLED)
    drafted = logging.drafted()
    logging.device.tokens += [*drafted, 7]
    request = logging.device.request(0)
    answer_to(logging.engine, request)
    answer_to(logging.engine, request)
    (found,) = logging.rounds
    assert (len(found.features), found.rejected) == (WINDOW, False)


@pytest.mark.parametrize(
    ("stops", "sent"),
    [(SendAndStop(ConfidenceLogistic(), 1.0), 1), (StopBefore(ConfidenceLogistic(), 1.0), 0)],
    ids=["sent", "withheld"],
)
def test_of_a_flagged_token_there_is_a_label_if_it_was_sent(stops: SendAndStop | StopBefore, sent: int) -> None:
    logging = Logging(SAMPLED, stops=Always(stops))
    drafted = logging.drafted()
    assert len(drafted) == sent
    logging.commit([other(drafted[0]) if drafted else 7])
    assert [(len(each.features), each.rejected) for each in logging.rounds] == [(1, True)] * sent


def test_nothing_is_kept_where_nobody_logs() -> None:
    device, engine = Device("a", SAMPLED), torch_drafter(tiny_llama())
    engine.open(device.opening(), TERMS)
    draft_of(engine, device.request(WINDOW))
    assert engine._generations["a"].sent_chain is None  # noqa: SLF001
