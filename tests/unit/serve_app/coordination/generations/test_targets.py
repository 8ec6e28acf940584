"""Only the target that has begun a response goes on with it."""

from dataclasses import replace

import pytest

from actors.messages import ModelCard
from outrider.contracts.errors import OtherTargetError
from outrider.costs.profiles import ProfiledOn
from serve_app.coordination.generations.generations import check_target
from tests.unit.serve_app.api.in_memory_service import request_for

MACHINE = ProfiledOn("a CPU", "cpu", 1, "torch", "tiny", "float32")
CARD = ModelCard("tiny", "hash of weights", "hash of tokens", 10, (0,), 100, machine=MACHINE)
OTHERS = (
    replace(CARD, model_hash="another"),
    replace(CARD, noise_version=CARD.noise_version + 1),
    replace(CARD, machine=replace(MACHINE, dtype="bfloat16")),
    replace(CARD, machine=replace(MACHINE, engine="vllm")),
)


def test_the_same_target_on_another_machine_goes_on() -> None:
    elsewhere = replace(CARD, name="a copy", machine=replace(MACHINE, hardware="another CPU", threads=8))
    for card in (CARD, elsewhere):
        check_target(card, request_for())
        check_target(card, replace(request_for(), target=CARD.target, token_map=CARD.token_map_hash))


@pytest.mark.parametrize("card", OTHERS)
def test_another_one_does_not_but_may_begin(card: ModelCard) -> None:
    check_target(card, replace(request_for(), token_map=CARD.token_map_hash))
    with pytest.raises(OtherTargetError, match="needs target hash of weights/torch/float32/noise"):
        check_target(card, replace(request_for(), target=CARD.target))


def test_token_ids_of_another_target_mean_something_else() -> None:
    with pytest.raises(OtherTargetError, match="needs token map others, found hash of tokens"):
        check_target(CARD, replace(request_for(), token_map="others"))  # noqa: S106 (no password)
