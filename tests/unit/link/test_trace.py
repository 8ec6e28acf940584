from itertools import islice
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.errors import ConfigError
from outrider.link.profiles import LinkProfile
from outrider.link.trace import LinkTrace, load_trace, parse_trace, profile_at, segments

HEADER = "time_s,up_bps,down_bps,rtt_s,per_up,per_down\n"
FIRST, SECOND, THIRD = (LinkProfile(rate, 2 * rate, 0.01, 0.1, 0.2) for rate in (1e6, 2e6, 3e6))
TRACE = LinkTrace((0.0, 1.0, 3.0), (FIRST, SECOND, THIRD))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "walk.csv"
    path.write_text(HEADER + "0, 1e6, 2e6, 0.01, 0.1, 0.2\n1,2e6,4e6,0.01,0.1,0.2\n3,3e6,6e6,0.01,0.1,0.2\n", "utf-8")
    assert load_trace(path) == TRACE


@pytest.mark.parametrize(
    ("t_s", "profile"),
    [
        (0.0, FIRST),
        (0.99, FIRST),
        (1.0, SECOND),
        (2.9, SECOND),
        (3.0, THIRD),
        (4.9, THIRD),
        (5.0, FIRST),
        (51.0, SECOND),
    ],
)
def test_a_line_holds_until_the_next_and_the_trace_repeats(t_s: float, profile: LinkProfile) -> None:
    assert profile_at(TRACE, t_s) == profile


def test_segments_tell_how_long_each_holds() -> None:
    assert list(islice(segments(TRACE, 0.25), 5)) == [(FIRST, 0.75), (SECOND, 2), (THIRD, 2), (FIRST, 1), (SECOND, 2)]
    assert list(segments(FIRST, 7.0)) == [(FIRST, inf)]
    assert list(segments(LinkTrace((0.0,), (FIRST,)), 7.0)) == [(FIRST, inf)]


@given(t_s=st.floats(-1e3, 1e6))
def test_segments_hold_until_the_next_line(t_s: float) -> None:
    (profile, lasts_s), (following, _) = islice(segments(TRACE, t_s), 2)
    assert profile == profile_at(TRACE, t_s)
    assert 0.0 <= lasts_s <= 2.0
    assert following == TRACE.profiles[(TRACE.profiles.index(profile) + 1) % 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv line 1 needs the columns time_s,up_bps,down_bps,rtt_s,per_up,per_down, found ''"),
        ("time_s,up_bps\n", "t.csv line 1 needs the columns time_s,.*, found 'time_s,up_bps'"),
        (HEADER, "t.csv line 2 needs at least one line of values, found 'the end of the file'"),
        (HEADER + "0,1,1\n", "t.csv line 2 needs 6 values, found '0,1,1'"),
        (HEADER + "0,1,1,0,0,0\n\n", "t.csv line 3 needs 6 values, found ''"),
        (HEADER + "0,1,fast,0,0,0\n", "t.csv line 2: down_bps needs a number, found 'fast'"),
        (HEADER + "0,1,nan,0,0,0\n", "t.csv line 2: down_bps needs a number, found 'nan'"),
        (HEADER + "0,0,1,0,0,0\n", "t.csv line 2: up_bps needs a number above 0, found 0.0"),
        (HEADER + "0,1,1,0,0,0\n1,1,1,0,1,0\n", r"t.csv line 3: per_up needs a number in \[0, 1\), found 1.0"),
        (HEADER + "1,1,1,0,0,0\n", "t.csv line 2: time_s needs 0 on the first line, found 1.0"),
        (
            HEADER + "0,1,1,0,0,0\n0,1,1,0,0,0\n",
            r"t.csv line 3: time_s needs a time after the line before \(0\), found 0.0",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_trace(text, "t.csv")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "not UTF-8"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"link trace needs a readable CSV file, found '.*t\.csv: "):
        load_trace(path)
