"""Parts of a pass: within the limits, and together exactly the whole."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.engines.segments import Segment
from outrider.engines.vllm.passes import split

SEGMENTS = st.lists(
    st.integers(1, 40).flatmap(lambda tokens: st.tuples(st.just(tokens), st.integers(0, tokens), st.integers(0, 9))),
    max_size=12,
)


@given(SEGMENTS, st.integers(1, 50), st.integers(1, 5))
def test_parts_keep_the_limits_and_lose_nothing(
    shapes: list[tuple[int, int, int]], max_tokens: int, max_segments: int
) -> None:
    whole = [Segment(range(100 * i, 100 * i + n), start, [i], rows) for i, (n, rows, start) in enumerate(shapes)]
    parts = split(whole, max_tokens, max_segments)
    assert all(0 < len(part) <= max_segments for part in parts)
    assert all(sum(len(s.token_ids) for s in part) <= max_tokens for part in parts)
    pieces = [piece for part in parts for piece in part]
    assert all(0 <= piece.logit_rows <= len(piece.token_ids) for piece in pieces)
    # Each token once, in order, in its slot; and the tokens whose rows come are those of the whole, in order.
    for segment in whole:
        own = [piece for piece in pieces if piece.blocks == segment.blocks]
        assert [t for piece in own for t in piece.token_ids] == list(segment.token_ids)
        slots = [slot for piece in own for slot in range(piece.start, piece.stop)]
        assert slots == list(range(segment.start, segment.stop))

    def tokens_with_rows(segments: list[Segment]) -> list[int]:
        return [t for s in segments for t in s.token_ids[len(s.token_ids) - s.logit_rows :]]

    assert tokens_with_rows(pieces) == tokens_with_rows(whole)


def test_a_pass_that_fits_stays_whole() -> None:
    segments = [Segment([1, 2, 3], 0, [0], 3), Segment([4], 7, [1], 0)]
    assert split(segments, 4, 2) == [segments]
    assert split([], 4, 2) == []
