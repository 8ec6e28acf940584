"""Every kind learns the same toy; what is not installed is named. The trees are tried where their libraries are."""

import importlib.util
import sys

import numpy as np
import pytest
from scipy.special import expit

from lab.training.predictor.families import FAMILIES, MLP, Fitted, SearchEffort, fit_families
from lab.training.predictor.mlp import EarlyStopping
from lab.training.ranking import area_under_curve
from tests.unit.lab.training.predictor.toy import toy, truth

LIBRARIES = {"random forest": "sklearn", "XGBoost": "xgboost", "LightGBM": "lightgbm"}
EFFORT = SearchEffort(trials=2, patience=EarlyStopping(6, 3), seed=5)


def installed(name: str) -> bool:
    return name not in LIBRARIES or importlib.util.find_spec(LIBRARIES[name]) is not None


@pytest.fixture(scope="module")
def fitted() -> dict[str, Fitted]:
    found, left_out = fit_families(toy(0, 3000), toy(1), EFFORT)
    assert set(left_out) == {name for name in FAMILIES if not installed(name)}
    return found


@pytest.mark.parametrize("name", list(FAMILIES))
def test_it_tells_what_there_is_to_tell(fitted: dict[str, Fitted], name: str) -> None:
    if not installed(name):
        pytest.skip(f"{LIBRARIES[name]} is not installed")
    test, model = toy(2, 4000), fitted[name]
    best = area_under_curve(truth(test.features), test.accepted)
    found = area_under_curve(model.scores(test.features), test.accepted)
    assert best is not None
    assert found is not None
    slack = 0.1 if "confidence" in name else 0.03  # the confidence is another number than what decides
    assert best - slack < found <= best + 0.01
    assert model.one_call(test.features[0])() is not None


def test_one_call_says_what_many_do(fitted: dict[str, Fitted]) -> None:
    features = toy(3, 20).features
    features[0] = 1.0 - 1e-9, 1e-8, 1.0 - 2e-9, 15.0  # as good as certain, which many rows of a text are
    for name, model in fitted.items():
        scores = model.scores(features)
        for row, score in zip(features, scores, strict=True):
            told = np.asarray(model.one_call(row)()).item()
            expected = score if model.predictor is None else expit(score)
            assert told == pytest.approx(expected, rel=1e-4, abs=1e-6), name


def test_a_search_is_a_function_of_its_seed(fitted: dict[str, Fitted]) -> None:
    again, _ = fit_families(toy(0, 3000), toy(1), EFFORT)
    features = toy(2, 50).features
    for name, model in fitted.items():
        assert again[name].settings == model.settings
        assert np.array_equal(again[name].scores(features), model.scores(features)), name


def test_what_is_not_installed_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in LIBRARIES.values():
        for module in [name for name in sys.modules if name.split(".")[0] == library]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)
    some = {name: FAMILIES[name] for name in ("logistic regression", *LIBRARIES)}
    found, left_out = fit_families(toy(0, 300), toy(1, 300), EFFORT, families=some)
    assert list(found) == ["logistic regression"]
    assert list(left_out) == list(LIBRARIES)
    for name, reason in left_out.items():
        assert LIBRARIES[name] in reason
        assert "pip install '.[train]'" in reason


def test_the_one_that_is_stored_is_among_them(fitted: dict[str, Fitted]) -> None:
    assert fitted[MLP].perceptron is not None
    assert fitted[MLP].tried == EFFORT.trials
    assert {name for name, model in fitted.items() if model.perceptron is not None} == {MLP}
