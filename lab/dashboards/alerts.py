"""Prometheus alerts, and how urgent each is."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.dashboards.promql import (
    BY_CLASS,
    BY_CLUSTER,
    BY_PROCESS,
    NOT_READY,
    READY,
    broken,
    healthy,
    named,
    series,
    summed,
    wanted,
)
from serve_app import metrics as m
from serve_app.metrics import Metric

OBJECTIVE = 0.95  # share of promised responses that keep their promise, and of tokens that are not late
FIRST_TOKEN_S, INTER_TOKEN_S = "5.0", "0.5"  # bounds of buckets; tokens at half a second are the slowest promise
_BUDGET = 1.0 - OBJECTIVE
_LEAST_RESPONSES = 20  # in an hour: with fewer, one broken promise would page


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    severity: str  # ``critical`` (now) or ``warning`` (in working hours), as kube-prometheus routes them
    wait: str  # how long the expression has to hold before it fires
    board: str  # the dashboard that shows it
    expr: str = ""
    summary: str = ""  # one line; ``{{ $labels.x }}`` and ``{{ $value }}`` are filled in

    def when(self, expr: str, summary: str) -> "Alert":
        return replace(self, expr=expr, summary=summary)


def _happened(counter: Metric, over: str, *labels: str) -> str:
    """Events in a window. A counter is absent before its first event, which no increase shows: that counts too."""
    name = named(counter)
    within, first = f"increase({name}[{over}])", f"({name} unless {name} offset {over})"
    return f"sum by ({', '.join((BY_CLUSTER, *labels))}) ({within} > 0 or {first})"


def _burn(share: Callable[[str], str], factor: float, long: str, short: str) -> str:
    """Burn rate above ``factor`` times the error budget, in both the long and the short window."""
    limit = f"{factor * _BUDGET:g}"
    return f"({share(long)} > {limit} and {share(short)} > {limit})"


def _burns_fast(share: Callable[[str], str]) -> str:
    return f"({_burn(share, 14.4, '1h', '5m')} or {_burn(share, 6.0, '6h', '30m')})"


def _late(histogram: Metric, bound_s: str) -> Callable[[str], str]:
    """Share of observations above a bucket's bound, in a window."""

    def share(over: str) -> str:
        within = summed(histogram, over, f'le="{bound_s}"', suffix="_bucket")
        return f"(1 - {within} / {summed(histogram, over, suffix='_count')})"

    return share


_FAILED = 'end="failed"'
_ENOUGH = f"sum by ({BY_CLASS}) (increase({named(m.SLO_RESPONSES)}[1h])) >= {_LEAST_RESPONSES}"
_DRAFTERS = f"max by ({BY_CLUSTER}, group, state) ({named(m.DRAFTERS)})"
_MISSING = f"max by ({BY_CLUSTER}, group, state) ({series(m.DRAFTERS, NOT_READY)})"
_WANTED, _UP = (
    f"max by ({BY_CLUSTER}) ({series(m.GATEWAYS, state)})" for state in ('state="wanted"', 'state="running"')
)
_READY_OF_GROUP = f"max by ({BY_CLUSTER}, group) ({series(m.DRAFTERS, READY)})"
_MOST_READY = f"max_over_time({_READY_OF_GROUP}[1h:1m])"
_READY = f"sum by ({BY_CLUSTER}) (max by ({BY_CLUSTER}, group) ({series(m.DRAFTERS, READY)}))"
_WITH_DEVICES = series(m.TUNER_LOSS, 'arm=~"draft|lookup_draft"')
_QUEUED, _RUNNING = (
    f"sum by ({BY_CLUSTER}) ({series(m.GENERATIONS, state)})" for state in ('state="queued"', 'state="running"')
)
_REFUSED, _BEGUN = summed(m.NOT_ADMITTED, "10m"), summed(m.ADMITTED, "10m")
_COMPUTED = f"({summed(m.PROMPT_TOKENS, '10m')} + {summed(m.GENERATION_TOKENS, '10m')})"

ALERTS = (
    Alert("OutriderVerifierDown", "critical", "3m", "verifier").when(
        f"min by ({BY_PROCESS}) ({named(m.VERIFIER_READY)}) == 0",
        "A verifier has not answered for minutes: its responses stand still.",
    ),
    Alert("OutriderNothingExported", "critical", "5m", "overview").when(
        f"absent({named(m.VERIFIER_READY)})",
        "No coordinator exports anything: the service is gone, or it is not scraped.",
    ),
    Alert("OutriderReplicasMissing", "warning", "10m", "verifier").when(
        f"{wanted()} - ({healthy()} or 0 * {wanted()}) > 0",
        "{{ $value }} of the wanted replicas of {{ $labels.deployment }} are not there: a place, or a node, is gone.",
    ),
    Alert("OutriderNotScraped", "warning", "5m", "fleet").when(
        f'count by ({BY_CLUSTER}) (up{{{BY_CLUSTER}!=""}} == 0) > 0',
        "{{ $value }} exporters do not answer Prometheus: what they would tell is missing everywhere.",
    ),
    Alert("OutriderResponsesFail", "critical", "5m", "overview").when(
        f"{summed(m.RESPONSES, '5m', _FAILED)} / {summed(m.RESPONSES, '5m')} > 0.01",
        "{{ $value | humanizePercentage }} of responses fail with a server error.",
    ),
    Alert("OutriderPromisesBurnFast", "critical", "2m", "overview").when(
        f"{_burns_fast(broken)} and {_ENOUGH}",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} are broken: "
        "the month's budget is gone within days.",
    ),
    Alert("OutriderPromisesBurnSlowly", "warning", "1h", "overview").when(
        f"{_burn(broken, 1.0, '3d', '6h')} and {_ENOUGH}",
        "{{ $value | humanizePercentage }} of promises of {{ $labels.slo_class }} were broken over three days.",
    ),
    Alert("OutriderFirstTokensLate", "warning", "5m", "overview").when(
        _burns_fast(_late(m.TTFT_S, FIRST_TOKEN_S)),
        "{{ $value | humanizePercentage }} of first tokens take longer than " + FIRST_TOKEN_S + " s.",
    ),
    Alert("OutriderTokensLate", "warning", "5m", "overview").when(
        _burns_fast(_late(m.INTER_TOKEN_S, INTER_TOKEN_S)),
        "{{ $value | humanizePercentage }} of tokens come more than " + INTER_TOKEN_S + " s after the one before.",
    ),
    Alert("OutriderDraftingNetLoss", "warning", "30m", "speculation").when(
        f"(min by ({BY_PROCESS}) ({_WITH_DEVICES}) > 0.03) and on ({BY_CLUSTER}) ({_READY} > 0)",
        "Drafting by devices is measured to be {{ $value | humanizePercentage }} slower than the mode in use.",
    ),
    Alert("OutriderCostModelOff", "warning", "15m", "verifier").when(
        "abs(outrider:pass_measured_to_predicted:ratio_rate10m - 1) > 0.5",
        "Measured pass times differ from the predicted ones by {{ $value | humanizePercentage }} on average.",
    ),
    Alert("OutriderDraftersMissing", "warning", "10m", "fleet").when(
        f"sum by ({BY_CLUSTER}, group) ({_MISSING}) / sum by ({BY_CLUSTER}, group) ({_DRAFTERS}) > 0.25",
        "{{ $value | humanizePercentage }} of the drafters of {{ $labels.group }} cannot be leased.",
    ),
    Alert("OutriderDevicesGone", "warning", "10m", "fleet").when(
        # a fleet that has started anew, and has seen no device of the group, exports nothing of it
        f"({_READY_OF_GROUP} or 0 * {_MOST_READY}) < 0.5 * {_MOST_READY} and {_MOST_READY} >= 4",
        "{{ $value }} devices of {{ $labels.group }} are ready, fewer than half of the most in the last hour.",
    ),
    Alert("OutriderGatewaysMissing", "warning", "5m", "fleet").when(
        f"{_WANTED} > {_UP}",
        "Of {{ $value }} gateways that devices dial in to some do not run.",
    ),
    Alert("OutriderDraftersLost", "warning", "0m", "fleet").when(
        f"{_happened(m.DRAFTER_LOSSES, '15m')} > 3",
        "{{ $value | humanize }} times in 15 minutes a response lost its drafter.",
    ),
    Alert("OutriderPassesFail", "warning", "0m", "verifier").when(
        f"{_happened(m.PASS_FAULTS, '15m', 'kind')} >= 3",
        "{{ $value | humanize }} passes of the verifier failed in 15 minutes: {{ $labels.kind }}.",
    ),
    Alert("OutriderQueueGrows", "warning", "10m", "overview").when(
        f"{_QUEUED} > {_RUNNING} and {_QUEUED} > ({_QUEUED.replace('})', '} offset 5m)')})",
        "{{ $value }} responses wait for a place, more than are running, and the queue grows.",
    ),
    Alert("OutriderResponsesRefused", "warning", "10m", "overview").when(
        f"{_REFUSED} / ({_REFUSED} + ({_BEGUN} or 0 * {_REFUSED})) > 0.1",
        "{{ $value | humanizePercentage }} of responses are refused for lack of capacity.",
    ),
    Alert("OutriderKvPressure", "warning", "10m", "verifier").when(
        f"{summed(m.KV_RECOMPUTED_TOKENS, '10m')} / {_COMPUTED} > 0.1",
        "For each token, {{ $value | humanize }} are recomputed because their KV was evicted.",
    ),
    Alert("OutriderHeadDrifted", "warning", "5m", "speculation").when(
        f"max by ({BY_CLUSTER}, model) ({named(m.HEAD_DRIFT)}) == 1",
        "The decision head of {{ $labels.model }} passes another share than at calibration: it is switched off.",
    ),
    Alert("OutriderSettingsRefused", "warning", "1m", "fleet").when(
        f"sum by ({BY_CLUSTER}, deployment) ({named(m.SETTINGS_REFUSED)}) > 0",
        "{{ $value }} replicas of {{ $labels.deployment }} refused the last reloadable settings: earlier ones hold.",
    ),
    Alert("OutriderKeysRefused", "critical", "2m", "fleet").when(
        f"max by ({BY_CLUSTER}) ({named(m.KEYS_REFUSED)}) == 1 or max by ({BY_CLUSTER}) ({named(m.KEYS_AGE_S)}) > 600",
        "The API key file cannot be loaded: keys removed from it are still valid.",
    ),
)
