"""The selection policies by their configured names."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.selection.cheapest import Cheapest
from outrider.selection.cost_aware import CostAware
from outrider.selection.fixed import Fixed
from outrider.selection.situation import SelectionPolicy
from outrider.selection.wisv_rule import WisvRule


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy, and whether the configuration has to fix a window for it."""

    policy: SelectionPolicy
    needs_window: bool = False


SELECTION: Mapping[str, Selection] = {
    "cheapest": Selection(Cheapest()),
    "cost_aware": Selection(CostAware()),
    "wisv_rule": Selection(WisvRule()),
    "fixed": Selection(Fixed(), needs_window=True),
}
