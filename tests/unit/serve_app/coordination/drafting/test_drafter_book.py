from actors.messages import DrafterId
from outrider.config.drafters import DrafterGroupConfig
from outrider.config.reading import parse_config
from outrider.config.values import Trust
from serve_app.coordination.drafting.drafter_book import DrafterBook
from serve_app.coordination.settings import generations_settings

TEXT = """
drafters:
  - {name: plain}
  - {name: stopping, stopping: {rule: while_it_pays}}
  - {name: logging, round_log: {folder: /var/lib/outrider/rounds}}
  - {name: chains, engine: onnx}
"""


def test_a_choice_sees_of_a_device_whether_it_stops_and_whether_it_logs() -> None:
    drafting = generations_settings(parse_config(TEXT, "test")).drafting
    book = DrafterBook(drafting.drafters)
    views = {group: book.view(DrafterId(group, 0), 0.0) for group in ("plain", "stopping", "logging")}
    assert book.view(DrafterId("chains", 0), 0.0).chains_only
    assert not any(view.chains_only for view in views.values())
    assert book.able == {"plain", "stopping", "logging"}
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
