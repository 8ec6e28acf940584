"""Devices of a service log their rounds; what training reads of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.training.predictor.logged import LoggedRounds, read_logs
from lab.training.predictor.pair_names import pair_names
from outrider.contracts.autonomous_runs import may_be_late
from outrider.contracts.errors import ParameterError
from outrider.contracts.verifying import AcceptanceRule
from tests.cluster.served import Service, eventually

TOKENS = 64
_LOGGED_WITHIN_S = 120.0


def logged(service: Service, rule: AcceptanceRule) -> LoggedRounds | None:
    """All rounds of a rule that are in the devices' folders now."""
    place = service.config.drafters[0].round_log
    assert place is not None
    try:
        return read_logs([Path(place.folder)], pair_names("embedded", "embedded"), rule)
    except ParameterError:
        return None  # none yet


def requests_of(rounds: LoggedRounds | None) -> set[int]:
    """No two of these tests ask for the same, so each is a text of its own."""
    return set() if rounds is None else {number for (number,) in rounds.texts}


@pytest.mark.parametrize(
    ("rule", "protocol", "temperature"),
    [
        pytest.param(AcceptanceRule.GREEDY, "token_ids", 0.0, marks=pytest.mark.long),
        (AcceptanceRule.RATIO, "dsd", 0.8),
    ],
)
def test_what_became_of_drafts_is_on_the_devices_that_made_them(
    service: Service, rule: AcceptanceRule, protocol: str, temperature: float
) -> None:
    before, answers = requests_of(logged(service, rule)), list[dict[str, Any]]()

    def some_are_logged() -> bool:
        """A response that ends before its drafter has read the prompt has no draft; then the next one is asked for."""
        prompt, choice = f"Tell me of the number {len(answers)}.", {"window": 4, "protocol": protocol}
        answers.append(service.complete(prompt, outrider=choice, temperature=temperature, max_tokens=TOKENS))
        return len(requests_of(logged(service, rule)) - before) > 1

    eventually(some_are_logged, _LOGGED_WITHIN_S)
    found = logged(service, rule)
    assert found is not None
    assert set(found.stops) == {"send_and_stop"}
    new = np.isin([found.texts[at][0] for at in found.tokens.prompt], list(requests_of(found) - before))
    tokens = found.tokens.where(new)
    details = [answer["usage"]["completion_tokens_details"] for answer in answers]
    drafted_well = sum(each["accepted_prediction_tokens"] for each in details)
    drafted_in_vain = sum(each["rejected_prediction_tokens"] for each in details)
    committed = sum(answer["usage"]["completion_tokens"] for answer in answers)
    # A greedy draft that comes late was drafted well where it equals what was committed without it.
    assert 0 < tokens.accepted.sum() <= (committed if may_be_late(rule) else drafted_well)
    assert 0 < len(tokens) - tokens.accepted.sum() <= drafted_in_vain
    assert set(tokens.temperature) == {temperature}
    confidence, entropy_nats, margin, _ = tokens.features.T
    assert ((confidence > 0.0) & (confidence <= 1.0 + 1e-6) & (margin <= confidence) & (entropy_nats >= 0.0)).all()
