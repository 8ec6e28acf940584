from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lab.bench.harness.recorded_drafts import RecordedResponse, greedy_responses, read_responses, write_responses
from tests.unit.engines.conftest import tiny_llama, torch_verifier
from tests.unit.engines.reference import target_alone, tiny_alone
from tests.unit.lab.bench.recorded_tiny import K_MAX, PROMPTS, TOKENS, tiny_responses
from tests.unit.serve_app.api.in_memory_service import draft_model
from tests.unit.serve_app.coordination.in_memory import GREEDY


def test_a_response_is_the_targets_own() -> None:
    for response in tiny_responses():
        assert list(response.output_ids) == tiny_alone(response.prompt_ids, GREEDY, TOKENS)


@given(response=st.sampled_from(tiny_responses()), committed=st.integers(0, TOKENS - 1))
def test_a_draft_is_what_the_drafter_says_behind_the_committed_tokens(
    response: RecordedResponse, committed: int
) -> None:
    prefix = (*response.prompt_ids, *response.output_ids[:committed])
    assert list(response.draft(committed, K_MAX)) == target_alone(draft_model(), prefix, GREEDY, K_MAX)


@given(window=st.integers(0, K_MAX), committed=st.integers(0, TOKENS + 3))
def test_a_shorter_draft_is_the_beginning_of_a_longer_one(window: int, committed: int) -> None:
    response = tiny_responses()[0]
    longest = response.draft(committed, K_MAX)
    assert response.draft(committed, window) == longest[:window]
    assert len(longest) == (K_MAX if committed < TOKENS else 0)


def test_a_response_ends_with_an_end_of_sequence_token() -> None:
    whole = tiny_responses()[0].output_ids
    end = whole[4]
    first = whole.index(end)
    assert greedy_responses(torch_verifier(tiny_llama()), PROMPTS[:1], TOKENS, (end,)) == [whole[: first + 1]]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "drafts.json"
    write_responses(file, tiny_responses())
    assert read_responses(file) == tiny_responses()
    assert [kept.name for kept in file.parent.iterdir()] == ["drafts.json"]
