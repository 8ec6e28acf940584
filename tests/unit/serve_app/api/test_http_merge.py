import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contracts.requests import GenerationChunk, RoundStats
from serve_app.api.http.merge import merged, with_deadlines
from tests.unit.serve_app.api.asking import within
from tests.unit.serve_app.api.text_service import SETTINGS
from tests.unit.virtual_clock import now_s, on_loop


class Source:
    """Gives its items, yielding to others before each as often as told; then its error, if it has one."""

    def __init__(self, items: list[tuple[int, int]], error: Exception | None = None) -> None:
        self._items, self._error = items, error
        self.given = 0
        self.closed = False

    async def run(self) -> AsyncGenerator[int, None]:
        try:
            for item, turns in self._items:
                for _ in range(turns):
                    await asyncio.sleep(0)
                self.given += 1
                yield item
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


ITEMS = st.lists(st.tuples(st.integers(), st.integers(0, 3)), max_size=6)


@given(st.lists(ITEMS, min_size=1, max_size=5))
def test_nothing_is_lost_and_each_source_keeps_its_order(items: list[list[tuple[int, int]]]) -> None:
    async def collect() -> list[tuple[int, int]]:
        return [arrival async for arrival in merged([Source(own).run() for own in items])]

    arrived = within(collect())
    for index, own in enumerate(items):
        assert [item for source, item in arrived if source == index] == [item for item, _ in own]
    assert len(arrived) == sum(map(len, items))


def test_an_error_of_one_closes_the_others() -> None:
    endless = [(i, 1) for i in range(1000)]
    sources = [Source(endless), Source([(1, 0)], ValueError("broken")), Source(endless)]

    async def collect() -> None:
        async for _ in merged([source.run() for source in sources]):
            pass

    with pytest.raises(ValueError, match="broken"):
        within(collect())
    assert all(source.closed for source in sources)


def test_little_is_read_ahead_and_closing_closes_all() -> None:
    sources = [Source([(i, 0) for i in range(1000)]) for _ in range(3)]

    async def take_one() -> None:
        async with aclosing(merged([source.run() for source in sources])) as items:
            await anext(items)
            for _ in range(100):
                await asyncio.sleep(0)

    within(take_one())
    assert sum(source.given for source in sources) <= 8
    assert all(source.closed for source in sources)


async def chunks_after(*pauses_s: float) -> AsyncGenerator[GenerationChunk, None]:
    for number, pause_s in enumerate(pauses_s):
        await asyncio.sleep(pause_s)
        yield GenerationChunk((number,), (), RoundStats(), number)


@pytest.mark.parametrize(
    ("first_s", "next_s", "pauses_s", "reads_for_s", "late_at_s"),
    [
        (1.0, 1.0, (0.9,) * 5, 0.0, None),  # longer than a deadline, each of them in time
        (1.0, 1.0, (0.9, 0.9, 0.9, 1.1), 0.0, 3.7),
        (1.0, 1.0, (0.9, 0.9, 0.9), 5.0, None),  # a slow client's time is not the model's
        (1.0, 1.0, (0.9, 1.1), 5.0, 6.9),
        (9.0, 1.0, (0.5, 1.1), 0.0, 1.5),
        (1.0, 9.0, (0.5, 8.0, 8.0), 0.0, None),
        (1.0, 9.0, (1.1,), 0.0, 1.0),
    ],
)
def test_each_chunk_has_a_deadline_of_its_own(
    first_s: float, next_s: float, pauses_s: tuple[float, ...], reads_for_s: float, late_at_s: float | None
) -> None:
    @on_loop
    async def read() -> None:
        settings = replace(SETTINGS, first_chunk_deadline_s=first_s, next_chunk_deadline_s=next_s)
        read, late = 0, None
        try:
            async for _ in with_deadlines(chunks_after(*pauses_s), settings):
                read += 1
                await asyncio.sleep(reads_for_s)
        except TimeoutError:
            late = now_s()
        assert late == (None if late_at_s is None else pytest.approx(late_at_s))
        assert read == len(pauses_s) - (late is not None)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    read()
