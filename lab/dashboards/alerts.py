"""Prometheus alerts, and how urgent each is."""

from dataclasses import dataclass

from lab.dashboards.promql import NOT_READY, READY, named, series
from lab.dashboards.summing import BY_CLASS, BY_CLUSTER, BY_PROCESS, broken, summed
from serve_app import metrics as m
from serve_app.metrics import Metric

OBJECTIVE = 0.95  # share of promised responses that keep their promise
_BUDGET = 1.0 - OBJECTIVE
_LEAST_RESPONSES = 20  # in an hour: with fewer, one broken promise would page


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        severity: ``page`` (now) or ``ticket`` (in working hours).
        wait: how long the expression has to hold before it fires.
        summary: one line; ``{{ $labels.x }}`` and ``{{ $value }}`` are filled in.
        board: the dashboard that shows it.
    """

    name: str
    expr: str
    severity: str
    wait: str
    summary: str
    board: str


def _happened(counter: Metric, over: str, *labels: str) -> str:
    """Events in a window. A counter is absent before its first event, which no increase shows: that counts too."""
    name = named(counter)
    within, first = f"increase({name}[{over}])", f"({name} unless {name} offset {over})"
    return f"sum by ({', '.join((BY_CLUSTER, *labels))}) ({within} > 0 or {first})"


def _burn(factor: float, long: str, short: str) -> str:
    """Burn rate above ``factor`` times the error budget, in both the long and the short window."""
    limit = f"{factor * _BUDGET:g}"
    return f"({broken(long)} > {limit} and {broken(short)} > {limit})"


_FAILED = 'end="failed"'
_ENOUGH = f"sum by ({BY_CLASS}) (increase({named(m.SLO_RESPONSES)}[1h])) >= {_LEAST_RESPONSES}"
_DRAFTERS = f"max by ({BY_CLUSTER}, group, state) ({named(m.DRAFTERS)})"
_MISSING = f"max by ({BY_CLUSTER}, group, state) ({series(m.DRAFTERS, NOT_READY)})"
_READY = f"sum by ({BY_CLUSTER}) (max by ({BY_CLUSTER}, group) ({series(m.DRAFTERS, READY)}))"
_WITH_DEVICES = series(m.TUNER_LOSS, 'arm=~"draft|lookup_draft"')
_QUEUED, _RUNNING = (
    f"sum by ({BY_CLUSTER}) ({series(m.GENERATIONS, state)})" for state in ('state="queued"', 'state="running"')
)
_REFUSED, _BEGUN = summed(m.NOT_ADMITTED, "10m"), summed(m.ADMITTED, "10m")
_COMPUTED = f"({summed(m.PROMPT_TOKENS, '10m')} + {summed(m.GENERATION_TOKENS, '10m')})"

ALERTS = (
    Alert(
        "OutriderVerifierDown",
        f"min by ({BY_PROCESS}) ({named(m.VERIFIER_READY)}) == 0",
        "page",
        "3m",
        "A verifier has not answered for minutes: its responses stand still.",
        "verifier",
    ),
    Alert(
        "OutriderNothingExported",
        f"absent({named(m.VERIFIER_READY)})",
        "page",
        "5m",
        "No coordinator exports anything: the service is gone, or it is not scraped.",
        "overview",
    ),
    Alert(
        "OutriderResponsesFail",
        f"{summed(m.RESPONSES, '5m', _FAILED)} / {summed(m.RESPONSES, '5m')} > 0.01",
        "page",
        "5m",
        "{{ $value | humanizePercentage }} of responses fail with a server error.",
        "overview",
    ),
    Alert(
        "OutriderPromisesBurnFast",
        f"({_burn(14.4, '1h', '5m')} or {_burn(6.0, '6h', '30m')}) and {_ENOUGH}",
        "page",
        "2m",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} are broken: "
        "the month's budget is gone within days.",
        "overview",
    ),
    Alert(
        "OutriderPromisesBurnSlowly",
        f"{_burn(1.0, '3d', '6h')} and {_ENOUGH}",
        "ticket",
        "1h",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} were broken over three days.",
        "overview",
    ),
    Alert(
        "OutriderDraftingNetLoss",
        f"(min by ({BY_PROCESS}) ({_WITH_DEVICES}) > 0.03) and on ({BY_CLUSTER}) ({_READY} > 0)",
        "ticket",
        "30m",
        "Drafting by devices is measured to be {{ $value | humanizePercentage }} slower than the mode in use.",
        "speculation",
    ),
    Alert(
        "OutriderCostModelOff",
        "abs(outrider:pass_measured_to_predicted:ratio_rate10m - 1) > 0.5",
        "ticket",
        "15m",
        "Measured pass times differ from the predicted ones by {{ $value | humanizePercentage }} on average.",
        "verifier",
    ),
    Alert(
        "OutriderDraftersMissing",
        f"sum by ({BY_CLUSTER}, group) ({_MISSING}) / sum by ({BY_CLUSTER}, group) ({_DRAFTERS}) > 0.25",
        "ticket",
        "10m",
        "{{ $value | humanizePercentage }} of the drafters of {{ $labels.group }} cannot be leased.",
        "fleet",
    ),
    Alert(
        "OutriderDraftersLost",
        f"{_happened(m.DRAFTER_LOSSES, '15m')} > 3",
        "ticket",
        "0m",
        "{{ $value | humanize }} times in 15 minutes a response lost its drafter.",
        "fleet",
    ),
    Alert(
        "OutriderPassesFail",
        f"{_happened(m.PASS_FAULTS, '15m', 'kind')} >= 3",
        "ticket",
        "0m",
        "{{ $value | humanize }} passes of the verifier failed in 15 minutes: {{ $labels.kind }}.",
        "verifier",
    ),
    Alert(
        "OutriderQueueGrows",
        f"{_QUEUED} > {_RUNNING} and {_QUEUED} > ({_QUEUED.replace('})', '} offset 5m)')})",
        "ticket",
        "10m",
        "{{ $value }} responses wait for a place, more than are running, and the queue grows.",
        "overview",
    ),
    Alert(
        "OutriderResponsesRefused",
        f"{_REFUSED} / ({_REFUSED} + ({_BEGUN} or 0 * {_REFUSED})) > 0.1",
        "ticket",
        "10m",
        "{{ $value | humanizePercentage }} of responses are refused for lack of capacity.",
        "overview",
    ),
    Alert(
        "OutriderKvPressure",
        f"{summed(m.KV_RECOMPUTED_TOKENS, '10m')} / {_COMPUTED} > 0.1",
        "ticket",
        "10m",
        "For each token, {{ $value | humanize }} are recomputed because their KV was evicted.",
        "verifier",
    ),
    Alert(
        "OutriderHeadDrifted",
        f"max by ({BY_CLUSTER}, model) ({named(m.HEAD_DRIFT)}) == 1",
        "ticket",
        "5m",
        "The decision head of {{ $labels.model }} passes another share than at calibration: it is switched off.",
        "speculation",
    ),
    Alert(
        "OutriderSettingsRefused",
        f"sum by ({BY_CLUSTER}, deployment) ({named(m.SETTINGS_REFUSED)}) > 0",
        "ticket",
        "1m",
        "{{ $value }} replicas of {{ $labels.deployment }} refused the last reloadable settings: earlier ones hold.",
        "fleet",
    ),
    Alert(
        "OutriderKeysRefused",
        f"max by ({BY_CLUSTER}) ({named(m.KEYS_REFUSED)}) == 1 or max by ({BY_CLUSTER}) ({named(m.KEYS_AGE_S)}) > 600",
        "page",
        "2m",
        "The API key file cannot be loaded: keys removed from it are still valid.",
        "fleet",
    ),
)
