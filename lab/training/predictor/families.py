"""Kinds of models that predict acceptance, compared on the same features.

Forests and boosted trees need libraries that nothing else here needs (the extra ``train``); a kind without its library
is reported as left out. As in WISP's appendix B, trees are fitted to the plain likelihood, the perceptron to balanced
classes. Settings are drawn with a seed from the dimensions of its Table 9 and chosen on the validation part: the
perceptron's by loss, the trees' by the area under the curve, which needs no threshold.
"""

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lab.training.predictor.drafted import DraftedTokens, Floats
from lab.training.predictor.logistic import fit_logistic, learn_online, logits
from lab.training.predictor.mlp import EarlyStopping, search_mlp
from lab.training.ranking import area_under_curve
from outrider.drafting.acceptance import AcceptancePredictor, ConfidenceLogistic, confidence_logit
from outrider.drafting.features import DraftFeatures
from outrider.drafting.perceptron import Perceptron

MLP, AS_IT_IS = "MLP", "confidence"
_EARLY_STOPPING_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted model of acceptance.

    Attributes:
        scores: ``[N, 4]`` features to ``[N]`` scores; at least 0, the logit of one half, predicts acceptance.
        predictor: the same for one row, as a device would call it; None: ``scores`` of one row.
    """

    scores: Callable[[Floats], Floats]
    settings: Mapping[str, object]  # chosen ones
    tried: int = 1  # number of settings tried
    predictor: AcceptancePredictor | None = None
    perceptron: Perceptron | None = None  # set if it is one

    def one_call(self, features: Floats) -> Callable[[], object]:
        """The call a device would make for a row with these features, ``[4]``."""
        if self.predictor is not None:
            reported, predictor = RecordedFeatures(features), self.predictor
            return lambda: predictor.probability(reported)
        row = features[None]
        return lambda: self.scores(row)


class RecordedFeatures(DraftFeatures):
    """Features of a row that is no longer at hand."""

    def __init__(self, vector: Floats) -> None:
        """``vector``: as ``DraftFeatures.vector``."""
        super().__init__(np.ones(1))
        self._vector = vector
        self.confidence = float(vector[0])

    @property
    def vector(self) -> Floats:
        return self._vector


@dataclass(frozen=True, slots=True)
class SearchEffort:
    trials: int = 12  # settings tried of each kind that has any
    patience: EarlyStopping = field(default_factory=EarlyStopping)
    seed: int = 0


Fit = Callable[[DraftedTokens, DraftedTokens, SearchEffort], Fitted]


def fit_perceptron(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:
    found = search_mlp(train, validation, trials=effort.trials, patience=effort.patience, seed=effort.seed)
    chosen = found.settings
    settings = {name: getattr(chosen, name) for name in chosen.__dataclass_fields__} | {"epochs": found.best_epoch}
    own = found.perceptron
    return Fitted(own.scores, settings, effort.trials, predictor=own, perceptron=own)


def fit_confidence(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:  # noqa: ARG001 (one signature for all)
    """Logistic on the confidence's logit alone, learnt online."""
    learnt = learn_online(train.features[:, 0], train.accepted)

    def scores(features: Floats) -> Floats:
        return _confidence_logits(features) * learnt.weight + learnt.bias

    return Fitted(scores, {"weight": learnt.weight, "bias": learnt.bias}, predictor=learnt)


def fit_confidence_as_it_is(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:  # noqa: ARG001 (one signature for all)
    """The confidence itself as the probability; nothing is fitted."""
    return Fitted(_confidence_logits, {}, predictor=ConfidenceLogistic())


def fit_regression(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:  # noqa: ARG001 (one signature for all)
    """Logistic regression on all four features."""
    found = fit_logistic(train.features, train.accepted.astype(np.float64))
    return Fitted(found.scores, {"weights": found.weights.tolist(), "bias": found.bias})


def fit_forest(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:
    ensemble = importlib.import_module("sklearn.ensemble")

    def drawn(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "n_estimators": int(rng.integers(50, 401)),
            "max_depth": int(rng.integers(3, 17)),
            "min_samples_split": int(rng.integers(2, 21)),
            "min_samples_leaf": int(rng.integers(1, 21)),
            "max_features": float(rng.choice([0.25, 0.5, 0.75, 1.0])),
        }

    def fitted(settings: dict[str, Any]) -> Callable[[Floats], Floats]:
        model = ensemble.RandomForestClassifier(**settings, random_state=effort.seed, n_jobs=1)
        model.fit(train.features, train.accepted)
        return lambda features: logits(model.predict_proba(features)[:, 1])

    return _searched(drawn, fitted, validation, effort)


def fit_xgboost(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:
    xgboost = importlib.import_module("xgboost")

    def drawn(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "n_estimators": int(rng.integers(50, 601)),
            "max_depth": int(rng.integers(2, 9)),
            "learning_rate": _log_uniform(rng, 0.01, 0.3),
            "subsample": float(rng.uniform(0.5, 1.0)),
            "colsample_bytree": float(rng.uniform(0.5, 1.0)),
            "min_child_weight": _log_uniform(rng, 0.5, 20.0),
            "gamma": float(rng.uniform(0.0, 2.0)),
            "reg_lambda": _log_uniform(rng, 0.1, 10.0),
            "reg_alpha": float(rng.uniform(0.0, 1.0)),
        }

    def fitted(settings: dict[str, Any]) -> Callable[[Floats], Floats]:
        own = dict(settings)
        most = own.pop("n_estimators")
        parameters = {**own, "objective": "binary:logistic", "nthread": 1, "seed": effort.seed, "verbosity": 0}
        matrices = [xgboost.DMatrix(part.features, part.accepted) for part in (train, validation)]
        model = xgboost.train(
            parameters,
            matrices[0],
            most,
            evals=[(matrices[1], "validation")],
            early_stopping_rounds=_EARLY_STOPPING_ROUNDS,
            verbose_eval=False,
        )
        stop = model.best_iteration + 1
        return lambda features: _wide(model.inplace_predict(features, iteration_range=(0, stop), predict_type="margin"))

    return _searched(drawn, fitted, validation, effort)


def fit_lightgbm(train: DraftedTokens, validation: DraftedTokens, effort: SearchEffort) -> Fitted:
    lightgbm = importlib.import_module("lightgbm")

    def drawn(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "n_estimators": int(rng.integers(50, 601)),
            "num_leaves": int(rng.integers(4, 64)),
            "max_depth": int(rng.integers(2, 9)),
            "learning_rate": _log_uniform(rng, 0.01, 0.3),
            "subsample": float(rng.uniform(0.5, 1.0)),
            "colsample_bytree": float(rng.uniform(0.5, 1.0)),
            "min_child_samples": int(rng.integers(5, 101)),
            "reg_lambda": _log_uniform(rng, 0.1, 10.0),
            "reg_alpha": float(rng.uniform(0.0, 1.0)),
        }

    def fitted(settings: dict[str, Any]) -> Callable[[Floats], Floats]:
        own = dict(settings)
        most = own.pop("n_estimators")
        fixed = {"objective": "binary", "num_threads": 1, "seed": effort.seed, "verbosity": -1, "subsample_freq": 1}
        data = lightgbm.Dataset(train.features, train.accepted)
        held_out = lightgbm.Dataset(validation.features, validation.accepted, reference=data)
        stopping = lightgbm.early_stopping(_EARLY_STOPPING_ROUNDS, verbose=False)
        model = lightgbm.train({**fixed, **own, "deterministic": True}, data, most, [held_out], callbacks=[stopping])
        return lambda features: _wide(model.predict(features, raw_score=True))

    return _searched(drawn, fitted, validation, effort)


FAMILIES: Mapping[str, Fit] = {
    MLP: fit_perceptron,
    AS_IT_IS: fit_confidence_as_it_is,
    "online confidence": fit_confidence,
    "logistic regression": fit_regression,
    "random forest": fit_forest,
    "XGBoost": fit_xgboost,
    "LightGBM": fit_lightgbm,
}


def fit_families(
    train: DraftedTokens,
    validation: DraftedTokens,
    effort: SearchEffort,
    *,
    families: Mapping[str, Fit] = FAMILIES,
    on_family: Callable[[str], None] = lambda _name: None,
) -> tuple[dict[str, Fitted], dict[str, str]]:
    """Fit all kinds; return them by name, and why each of the others was left out."""
    found, left_out = dict[str, Fitted](), dict[str, str]()
    for name, fit in families.items():
        on_family(name)
        try:
            found[name] = fit(train, validation, effort)
        except ImportError as error:
            left_out[name] = f"{error}; pip install '.[train]' in a checkout"
    return found, left_out


def _searched(
    drawn: Callable[[np.random.Generator], dict[str, Any]],
    fitted: Callable[[dict[str, Any]], Callable[[Floats], Floats]],
    validation: DraftedTokens,
    effort: SearchEffort,
) -> Fitted:
    rng = np.random.default_rng(effort.seed)
    best: tuple[float, Fitted] | None = None
    for settings in [drawn(rng) for _ in range(effort.trials)]:
        scores = fitted(settings)
        area = area_under_curve(scores(validation.features), validation.accepted)
        if best is None or (area or 0.0) > best[0]:
            best = area or 0.0, Fitted(scores, settings, effort.trials)
    assert best is not None, "at least one trial"
    return best[1]


def _confidence_logits(features: Floats) -> Floats:
    return np.array([confidence_logit(confidence) for confidence in features[:, 0].tolist()])


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _wide(scores: Any) -> Floats:
    return np.asarray(scores, np.float64)
