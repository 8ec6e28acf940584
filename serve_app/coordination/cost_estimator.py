"""The cost model a coordinator begins with: a profile that fits its verifier, or the built-in one."""

import logging
from collections.abc import Sequence

from outrider.contracts.cost import DEFAULT_COST_MODEL
from outrider.costs.estimator import OnlineEstimator
from outrider.costs.prior import PROFILED_MACHINE
from outrider.costs.profiles import CostProfile, ProfiledOn, matches
from outrider.events import event

log = logging.getLogger(__name__)


def cost_estimator(profiles: Sequence[CostProfile], machine: ProfiledOn | None) -> OnlineEstimator:
    """Begin with the first profile that was measured on such a machine; those before it are refused in the log.

    Args:
        profiles: the configuration's.
        machine: the verifier's; None if it does not tell.
    """
    for profile in profiles:
        refusal = "the verifier does not tell its machine" if machine is None else matches(profile, machine)
        if refusal is None:
            event(log, "cost_profile_taken", profile=profile.name, date=profile.date)
            return OnlineEstimator(profile.model, PROFILED_MACHINE)
        event(log, "cost_profile_refused", logging.WARNING, profile=profile.name, reason=refusal)
    return OnlineEstimator(DEFAULT_COST_MODEL)
