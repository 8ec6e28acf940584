from dataclasses import replace

import pytest

from actors.messages import DrafterId
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.reading import parse_config
from outrider.config.values import Trust
from outrider.link.state import LinkSample
from serve_app.coordination.drafting.drafter_book import DrafterBook, ExchangeOutcome
from serve_app.coordination.settings import generations_settings

TEXT = """
drafters:
  - {name: plain}
  - {name: stopping, stopping: {rule: while_it_pays}}
  - {name: logging, round_log: {folder: /var/lib/outrider/rounds}}
  - {name: chains, engine: auto, model: small.onnx}
  - {name: first, engine: onnx}
"""


def test_what_is_known_of_a_devices_link_outlives_its_process() -> None:
    drafting = generations_settings(parse_config(TEXT, "test")).drafting
    book = DrafterBook(drafting.drafters)
    assert book.record(DrafterId("chains", 0, 7)) is book.record(DrafterId("chains", 0, 8)), "or records would pile up"


def test_a_choice_sees_of_a_device_whether_it_stops_and_whether_it_logs() -> None:
    drafting = generations_settings(parse_config(TEXT, "test")).drafting
    book = DrafterBook(drafting.drafters)
    first = book.view(DrafterId("first", 0), 0.0)
    assert (first.chains_only, first.chains_first) == (False, True)
    views = {group: book.view(DrafterId(group, 0), 0.0) for group in ("plain", "stopping", "logging")}
    assert book.view(DrafterId("chains", 0), 0.0).chains_only
    assert not any(view.chains_only for view in views.values())
    assert book.able == {"plain", "stopping", "logging", "first"}
    assert [view.by_price for view in views.values()] == [False, True, False]
    assert {group: (view.stops, view.logs) for group, view in views.items()} == {
        "plain": (False, False),
        "stopping": (True, False),
        "logging": (False, True),
    }


def test_what_is_learned_of_an_untrusted_group_is_of_that_group_alone() -> None:
    trust: dict[str, Trust] = {"lab": "trusted", "office": "trusted", "street": "untrusted", "park": "untrusted"}
    book = DrafterBook(DrafterGroupConfig(name, trust=each, model="small") for name, each in trust.items())
    lab, office, street, park = [book.acceptance(DrafterId(group, 0)) for group in trust]
    assert lab is office
    assert len({id(each) for each in (lab, street, park)}) == 3
    assert street is book.acceptance(DrafterId("street", 1))


def test_the_worst_devices_of_a_minute_are_told_for_the_next_one() -> None:
    book = DrafterBook(())
    assert book.worst(1000.0) == {}
    for index in range(100):
        drafter = DrafterId("edge", index)
        for number in range(3):
            sample = LinkSample(float(number), 800, 800, elapsed_s=0.5 + 0.01 * (1 + index), peer_s=0.5)
            book.record(drafter).observe(sample, steps=1 + index)
        process = replace(drafter, incarnation=7000 + index)  # as a device that dialled in is leased
        book.exchanged(process, ExchangeOutcome.ANSWERED if index != 50 else ExchangeOutcome.SILENT)
    book.record(DrafterId("edge", 200)).observe(sample, steps=1)  # not asked since
    worst = book.worst(1001.0)
    assert set(worst) == {DrafterId("edge", index) for index in (0, 1, 2, 3, 50, 96, 97, 98, 99)}, "no good one"
    assert max(worst, key=lambda drafter: worst[drafter].rtt_s) == DrafterId("edge", 99)
    assert (worst[DrafterId("edge", 50)].unanswered, worst[DrafterId("edge", 99)].unanswered) == (0.2, 0.0)
    assert worst[DrafterId("edge", 0)].step_s == 0.5
    book.exchanged(DrafterId("edge", 51), ExchangeOutcome.GONE)
    book.exchanged(DrafterId("edge", 50), ExchangeOutcome.SILENT)
    assert set(book.worst(1060.0)) == set(worst), "also those that nobody has asked since"
    assert book.worst(1060.0)[DrafterId("edge", 50)].unanswered == pytest.approx(0.36), "the figures of now"
    assert set(book.worst(1061.0)) == {DrafterId("edge", 50), DrafterId("edge", 51)}
    assert book.worst(1121.0) == {}, "nobody was asked since"
