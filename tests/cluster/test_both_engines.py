"""A service with engine onnx: chains by onnx, and in the same drafter torch for who asks for anything else."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from outrider.config.assigning import override
from outrider.config.reading import load_config
from outrider.models.loading import LoadedModel
from outrider.training.traces import prompt_ids
from tests.cluster.prompts import CHATS
from tests.cluster.reference import greedy, shown
from tests.cluster.served import TOKENS, Service, started

pytestmark = pytest.mark.long

_MOST_ASKED = 10  # times for a response with a draft
CHAIN, TREE = {"window": 4}, {"protocol": "tslt_tree", "window": 3, "expansion": [3, 2, 1]}
GROWN, ROWS = {"protocol": "token_ids", "window": 3, "rows": 6}, {"protocol": "dsd", "window": 4}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started(override(load_config(), ["model.dtype=float32", "drafters.0.engine=onnx"])) as service:
        yield service


def drafted(service: Service, prompt: list[int], choice: Mapping[str, object], **request: object) -> dict[str, Any]:
    """The first answer with drafts: a response may end before a drafter is ready for it."""
    for _ in range(_MOST_ASKED):
        answer = service.complete(prompt, outrider=choice, **request)
        if answer["usage"]["outrider"]["accepted_tokens"]:
            return answer
    raise AssertionError(f"nobody drafted for any of {_MOST_ASKED} responses under {choice}")


def test_torch_is_there_for_who_asks_for_more_than_chains(service: Service, target: LoadedModel) -> None:
    prompt = prompt_ids(target.tokenizer, CHATS[0])
    expected = shown(target, greedy(target, prompt, TOKENS))
    sampled = service.complete(prompt, outrider={"window": 0}, seed=3)["choices"]
    for choice, needed in ((CHAIN, 0), (TREE, 1), (CHAIN, 1), (GROWN, 1), (ROWS, 1), (CHAIN, 1)):
        answer = drafted(service, prompt, choice, temperature=0)
        assert answer["choices"][0]["text"] == expected
        assert set(answer["usage"]["outrider"]["protocols"]) - {"none"} == {choice.get("protocol", "token_ids")}
        assert len(service.events("torch_drafter_needed")) == needed, choice
    assert drafted(service, prompt, CHAIN, seed=3)["choices"] == sampled
    assert drafted(service, prompt, GROWN, seed=3)["choices"] == sampled
    assert not service.events("drafter_given_up")
    service.check_released()
