import pickle

import pytest

from outrider.contracts.errors import ParameterError
from outrider.contracts.slo import BEST_EFFORT, DEFAULT_CLASSES, SloClass, slo_class_named


def test_the_papers_speeds_and_best_effort_are_the_defaults() -> None:
    assert [known.tokens_per_s for known in DEFAULT_CLASSES] == [2.0, 4.0, 6.0, 8.0, 0.0]
    assert DEFAULT_CLASSES[-1] is BEST_EFFORT
    assert len({known.name for known in DEFAULT_CLASSES}) == len(DEFAULT_CLASSES)


@pytest.mark.parametrize("known", DEFAULT_CLASSES, ids=lambda known: known.name)
def test_a_class_is_found_by_its_name(known: SloClass) -> None:
    assert slo_class_named(known.name, DEFAULT_CLASSES) is known
    assert slo_class_named(known.name, [known]) is known


@pytest.mark.parametrize("name", ["fast", "", "SPEED_8", "speed_8 ", "8"])
def test_an_unknown_class_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        slo_class_named(name, DEFAULT_CLASSES)
    listed = "speed_2, speed_4, speed_6, speed_8, best_effort"
    assert str(caught.value) == f"outrider.slo_class needs one of {listed}, found {name!r}"


def test_a_class_travels_with_its_request() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT_CLASSES)) == DEFAULT_CLASSES
    assert SloClass("idle") == SloClass("idle", 0.0)
