"""A drafter that logs, over its messages: what orders tell of its drafts comes to be in its files."""

import asyncio
import time
from pathlib import Path

import pytest

from actors.drafter.actor import DrafterActor
from lab.training.predictor.log_reading import RoundLogContents, read_log
from lab.training.predictor.pair_names import pair_names
from outrider.assembly.drafters import drafter_spec
from outrider.config.reading import parse_config
from outrider.contracts.drafting import Draft, DraftPlan, DraftRequest, DraftTerms
from outrider.contracts.exchanged import WireFormat
from outrider.contracts.prefix import EMPTY_PREFIX_HASH, extend_prefix_hash
from outrider.contracts.requests import SamplingParams
from outrider.contracts.verifying import AcceptanceRule, OpenGeneration
from outrider.drafting.round_log import request_number
from outrider.session.session import CoordinatorSession
from tests.unit.lab.training.head.tiny_pairs import load, save_pair

PROMPT = (5, 17, 8, 30, 2)
_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return save_pair(tmp_path_factory.mktemp("pair"), noise=0.05)


def actor_of(folders: tuple[str, str], log: str) -> DrafterActor:
    target, drafter = folders
    text = f"drafters: [{{name: edge, model: {drafter}, dtype: float32, round_log: {log}}}]"
    return DrafterActor(drafter_spec(parse_config(text, "test").drafters[0], target), None, 1)


async def accepts_one_of_each(actor: DrafterActor, name: str, rounds: int, vocab_size: int) -> list[tuple[int, ...]]:
    """Rounds of three, of which the first token is accepted and another one committed behind it."""
    wire, params = WireFormat(vocab_size), SamplingParams(temperature=0.9, seed=3)
    session, tokens, drafted = CoordinatorSession(wire, name), [*PROMPT], list[tuple[int, ...]]()
    await actor.open(OpenGeneration(name, PROMPT, params), DraftTerms(wire))
    for number in range(rounds):
        prefix_hash = extend_prefix_hash(EMPTY_PREFIX_HASH, tokens)
        at = len(PROMPT) + 2 * max(0, number - 1)
        request = DraftRequest(name, number, at, tuple(tokens[at:]), prefix_hash, DraftPlan("token_ids", 3))
        answer = await actor.exchange(name, session.encode_order(request))
        draft = session.decode_answer(answer.data, request)
        assert isinstance(draft, Draft)
        drafted.append(draft.token_ids)
        tokens += [draft.token_ids[0], draft.token_ids[1] ^ 1]
    return drafted


def read_eventually(folder: Path, rounds: int) -> RoundLogContents:
    give_up_at_s = time.monotonic() + _WITHIN_S
    while True:
        logs = [read_log(file.read_bytes()) for file in folder.glob("*.rounds")]
        if logs and logs[0] is not None and len(logs[0].rounds) >= rounds:
            (log,) = logs
            assert log is not None
            return log
        assert time.monotonic() < give_up_at_s, f"not {rounds} rounds within {_WITHIN_S:g} s"
        time.sleep(0.01)


def test_each_order_s_verdict_is_a_record_of_its_pair(folders: tuple[str, str], tmp_path: Path) -> None:
    actor = actor_of(folders, f"{{folder: {tmp_path}}}")
    asyncio.run(accepts_one_of_each(actor, "a", 5, load(folders).target.vocab_size))
    log = read_eventually(tmp_path / "edge-1", 4)
    assert len(log.rounds) == 4, "of the last nobody has told yet"
    assert all(each.rejected and each.features.shape == (2, 4) for each in log.rounds)
    assert {each.generation for each in log.rounds} == {request_number("a")}
    assert {each.temperature for each in log.rounds} == {0.9}
    names = pair_names(*folders)
    told = log.header
    assert (told.drafter_hash, told.target_hash) == (names.drafter_hash, names.target_hash)
    assert (told.rule, told.stops) == (AcceptanceRule.SHARED_NOISE, "never")


def test_drafting_goes_on_where_the_disk_refuses(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "edge-1").write_text("in the way")
    vocab_size = load(folders).target.vocab_size
    refused = asyncio.run(accepts_one_of_each(actor_of(folders, f"{{folder: {tmp_path}}}"), "a", 5, vocab_size))
    plain = asyncio.run(accepts_one_of_each(actor_of(folders, "null"), "a", 5, vocab_size))
    assert refused == plain
    assert (tmp_path / "edge-1").read_text() == "in the way"
