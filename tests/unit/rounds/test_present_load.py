"""What the choice of a round sees of load: of the mode in use, and of no other."""

import pytest

from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.rounds.present_load import PresentLoad
from outrider.selection.modes import DRAFT, NONE


def test_an_mode_is_never_seen_by_figures_of_another() -> None:
    load = PresentLoad()
    for _ in range(50):
        load.round(0.4, 0.02, DRAFT)
        load.batch(3, DRAFT)
    for _ in range(50):
        load.round(0.01, 0.002, NONE)
        load.batch(16, NONE)
    draft, none = (load.view(DEFAULT_COST_MODEL, mode) for mode in (DRAFT, NONE))
    assert [draft.queue_s, draft.fixed_s, draft.batch_blocks] == pytest.approx([0.4, 0.02, 3.0], rel=0.02)
    assert [none.queue_s, none.fixed_s, none.batch_blocks] == pytest.approx([0.01, 0.002, 16.0], rel=0.02)


def test_an_mode_that_is_begun_anew_soon_forgets_what_it_was() -> None:
    load = PresentLoad()
    for _ in range(100):
        load.batch(2, DRAFT)
    load.batch(16, NONE)
    for _ in range(4):
        load.round(0.1, 0.0, DRAFT)
        load.batch(12, DRAFT)
    assert load.view(DEFAULT_COST_MODEL, DRAFT).batch_blocks > 9.0


def test_a_new_service_is_idle() -> None:
    view = PresentLoad().view(DEFAULT_COST_MODEL, NONE)
    assert (view.queue_s, view.fixed_s, view.batch_blocks) == (0.0, 0.0, 1.0)


def test_what_everybody_is_told_is_of_all_rounds_of_some_batches() -> None:
    """Ten blocks that waited alike are one batch: they say less than the three before it."""
    load = PresentLoad()
    for waited_s in (0.2, 0.2, 0.2, 0.8):
        load.batch(10, DRAFT, 0.4)
        for _ in range(10):
            load.round(waited_s, 0.0, DRAFT)
    ours, last_rounds = load.lately(DRAFT), load.view(DEFAULT_COST_MODEL, DRAFT)
    assert ours.queue_s < 0.4
    assert last_rounds.queue_s > 0.55
    assert (ours.batch_s, ours.batch_blocks) == pytest.approx((0.4, 10.0), rel=0.3)
