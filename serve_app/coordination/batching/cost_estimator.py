"""Chooses the cost model that a coordinator starts with: the first profile that fits its verifier, or the built-in."""

import logging
from collections.abc import Sequence

from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.costs.estimator import OnlineEstimator
from outrider.costs.prior import PROFILED_MACHINE
from outrider.costs.profiles import CostProfile, ProfiledOn, matches
from outrider.events import event

log = logging.getLogger(__name__)


def cost_estimator(profiles: Sequence[CostProfile], machine: ProfiledOn | None) -> OnlineEstimator:
    """Return an estimator with the first profile measured on such a machine; log why those before it do not fit.

    ``machine`` is the verifier's; None if it is not known.
    """
    for profile in profiles:
        refusal = "the verifier does not report its machine" if machine is None else matches(profile, machine)
        if refusal is None:
            event(log, "cost_profile_taken", profile=profile.name, date=profile.date)
            return OnlineEstimator(profile.model, PROFILED_MACHINE)
        event(log, "cost_profile_refused", logging.WARNING, profile=profile.name, reason=refusal)
    return OnlineEstimator(DEFAULT_COST_MODEL)
