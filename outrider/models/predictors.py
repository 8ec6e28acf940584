"""Predictors of acceptance for a pair: those shipped with the package, or an operator's own."""

from pathlib import Path

from outrider.contracts.errors import ModelUnavailableError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor
from outrider.models.embedded import embedded_predictor_paths
from outrider.models.folders import AUTO
from outrider.models.pair_file import check_pair, pair_fault
from outrider.models.predictor_file import LoadedPredictor, PredictorInfo, read_predictor


def load_predictors(
    named: str | None, *, target_hash: str, drafter_hash: str
) -> dict[AcceptanceRule, AcceptancePredictor]:
    """Return a pair's predictors by acceptance rule.

    Args:
        named: a file of ``outrider train predictor``, or a folder of such files; ``auto``: what the package has for
            this pair, possibly nothing; None: none.
        target_hash: the target's ``ModelFacts.model_hash``.
        drafter_hash: the drafter's.

    Raises:
        ModelUnavailableError: a file is missing or holds no predictor; or two are for one rule.
        PairMismatchError: one is for another pair.
    """
    if named is None:
        return {}
    if named == AUTO:
        found = shipped_predictors(target_hash, drafter_hash)
    else:
        found = _by_rule([read_predictor(file) for file in _files(Path(named).expanduser())])
        for predictor in found.values():
            check_pair(predictor.info, target_hash=target_hash, drafter_hash=drafter_hash)
    return {rule: predictor.perceptron for rule, predictor in found.items()}


def shipped_predictors(target_hash: str, drafter_hash: str) -> dict[AcceptanceRule, LoadedPredictor]:
    every = [read_predictor(file) for file in embedded_predictor_paths()]
    hashes = {"target_hash": target_hash, "drafter_hash": drafter_hash}
    return _by_rule([predictor for predictor in every if pair_fault(predictor.info, **hashes) is None])


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    files = sorted(place.glob("*.safetensors"))
    if not files:
        raise ModelUnavailableError(
            f"needs predictors written by `{PredictorInfo.kind.command}` in {place}, found no *.safetensors"
        )
    return files


def _by_rule(predictors: list[LoadedPredictor]) -> dict[AcceptanceRule, LoadedPredictor]:
    found: dict[AcceptanceRule, LoadedPredictor] = {}
    for predictor in predictors:
        if found.setdefault(predictor.info.rule, predictor) is not predictor:
            raise ModelUnavailableError(
                f"needs one predictor for each rule, found two for {predictor.info.rule}; name the file of one"
            )
    return found
