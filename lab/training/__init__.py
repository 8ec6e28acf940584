"""Train decision heads and acceptance predictors from what pairs of models say (``outrider train``)."""
