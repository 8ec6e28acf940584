"""Board: whether drafting pays; all that vLLM's own dashboard shows of it, and more."""

from lab.dashboards.board import Board, Panel, Query, Shape, Variable, row
from lab.dashboards.promql import CLUSTER, COORDINATOR, buckets, quantile, rate, ratio, series, total
from serve_app import metrics as m

_ACCEPTED = rate(m.ACCEPTED_TOKENS, COORDINATOR)
_DRAFTED = rate(m.DRAFT_TOKENS, COORDINATOR)
_DRAFTS = rate(m.DRAFTS, COORDINATOR)

_AS_IN_VLLM = row(
    "As in vLLM",
    Panel("Acceptance now", "percentunit", Shape.NUMBER, warn=0.4, alarm=0.2, width=6).showing(
        "Draft tokens accepted of those verified. What pays depends on link and drafter; see the modes below.",
        ratio(_ACCEPTED, _DRAFTED),
    ),
    Panel("Accepted length now", "short", Shape.NUMBER, width=6).showing(
        "Tokens that a round with a draft commits, the verifier's own token included.",
        f"1 + {_ACCEPTED} / {_DRAFTS}",
    ),
    Panel("Of output from drafts", "percentunit", Shape.NUMBER, width=6).showing(
        "Accepted draft tokens, of all tokens sent to clients.",
        ratio(rate(m.ACCEPTED_TOKENS, CLUSTER), rate(m.GENERATION_TOKENS, CLUSTER)),
    ),
    Panel("Drafted now", "count:tok/s", Shape.NUMBER, width=6).showing(
        "Draft tokens verified per second.",
        _DRAFTED,
    ),
    Panel("Acceptance", "percentunit").showing(
        "Over time and by protocol; lookup is drafted from the text itself, without a device.",
        Query(ratio(_ACCEPTED, _DRAFTED), "all"),
        Query(
            ratio(
                rate(m.ACCEPTED_TOKENS, COORDINATOR, by="protocol"),
                rate(m.DRAFT_TOKENS, COORDINATOR, by="protocol"),
            ),
            "{{protocol}}",
        ),
    ),
    Panel("Acceptance by position", "percentunit").showing(
        "Share of drafts whose token at this position (from 0) was accepted. The last is high: longer may pay.",
        Query(
            f"sum by (position) (rate({series(m.ACCEPTED_AT, COORDINATOR)}[$__rate_interval]))"
            f" / on () group_left {_DRAFTS}",
            "{{position}}",
        ),
    ),
    Panel("Accepted length", "short").showing(
        "Tokens that a round with a draft commits.",
        Query(f"1 + {_ACCEPTED} / {_DRAFTS}", "all"),
        Query(
            f"1 + {rate(m.ACCEPTED_TOKENS, COORDINATOR, by='protocol')} / {rate(m.DRAFTS, COORDINATOR, by='protocol')}",
            "{{protocol}}",
        ),
    ),
    Panel("Drafted and accepted per second", "count:tok/s").showing(
        "The difference between drafted and accepted was wasted.",
        Query(_DRAFTED, "drafted"),
        Query(_ACCEPTED, "accepted"),
        Query(_DRAFTS, "drafts"),
    ),
    Panel("Prompt lookup", "count:tok/s", Shape.STACK).showing(
        "Draft tokens of n-gram drafts, per second.",
        Query(rate(m.LOOKUP_TOKENS, COORDINATOR, by="outcome"), "{{outcome}}"),
    ),
    Panel("Drafted a round", "short").showing(
        "Draft tokens verified in a round with a draft: windows, less what was trimmed before verification.",
        Query(f"{_DRAFTED} / {_DRAFTS}", "verified"),
    ),
)

_CHOICE = row(
    "Choices",
    Panel("Windows", "short", Shape.HEAT).showing(
        "Rounds per second by draft tokens, from devices or prompt lookup.",
        Query(buckets(m.DRAFT_WINDOW, COORDINATOR), "{{le}}"),
    ),
    Panel("Rounds by protocol", "short", Shape.STACK).showing(
        "Per second; none: without a draft.",
        Query(rate(m.ROUNDS, COORDINATOR, by="protocol"), "{{protocol}}"),
    ),
    Panel("Speculation mode in use", "short", Shape.STACK).showing(
        "Coordinators by the mode they use. none and lookup use no devices. No value: windows are fixed.",
        Query(total(m.TUNER_MODE, COORDINATOR, by="arm"), "{{arm}}"),
    ),
    Panel("Speed by speculation mode", "count:tok/s").showing(
        "Tokens per second of a response at the present load, as measured by probes.",
        Query(f"avg by (arm) ({series(m.TUNER_REWARD, COORDINATOR)})", "{{arm}}"),
    ),
    Panel("Loss by speculation mode", "percentunit", warn=0.03, alarm=0.3, to="link").showing(
        "Against the mode that is kept. Both modes with devices above 0 for long: drafting is a net loss.",
        Query(f"avg by (arm) ({series(m.TUNER_LOSS, COORDINATOR)})", "{{arm}}"),
    ),
    Panel("Probes and changes", "short").showing(
        "Per second. Changes that do not end: two modes are about as fast.",
        Query(rate(m.TUNER_PROBES, COORDINATOR, by="arm"), "probes of {{arm}}"),
        Query(rate(m.TUNER_CHANGES, COORDINATOR), "changes"),
    ),
    Panel("Cost of probes", "percentunit", warn=0.02, alarm=0.1).showing(
        "Of the time in which responses were active. About a fiftieth at most.",
        ratio(rate(m.TUNER_PROBES_LOST_S, COORDINATOR), rate(m.TUNER_ACTIVE_S, COORDINATOR)),
    ),
)

_COST = row(
    "Costs",
    Panel("Wasted drafting", "short", width=6, to="fleet").showing(
        "Devices' seconds per second spent on tokens that were rejected.",
        rate(m.WASTED_DRAFT_S, COORDINATOR),
    ),
    Panel("Payload", "bps", Shape.STACK, width=6, to="link").showing(
        "Length of the encoded messages of rounds; up is from devices.",
        Query(rate(m.PAYLOAD_BITS, COORDINATOR, by="protocol, direction"), "{{protocol}} {{direction}}"),
    ),
    Panel("Bits for a token from a draft", "decbits", width=6, to="link").showing(
        "Payload both ways for each accepted draft token.",
        ratio(rate(m.PAYLOAD_BITS, COORDINATOR), _ACCEPTED),
    ),
    Panel("Wire bits for a token from a draft", "decbits", width=6, to="link").showing(
        "All IP packets both ways for each accepted token that a device drafted.",
        ratio(rate(m.WIRE_BITS, CLUSTER), rate(m.ACCEPTED_TOKENS, CLUSTER, 'protocol!="lookup"')),
    ),
    Panel("Where rounds spend time", "s", to="verifier").showing(
        "The median of each phase, of rounds that were asked for.",
        Query(quantile(0.5, m.PHASE_S, COORDINATOR, by="phase"), "{{phase}}"),
    ),
    Panel("Measured pass to predicted", "short", to="verifier").showing(
        "1: the cost model by which windows are chosen is right on average.",
        ratio(rate(m.MEASURED_S, COORDINATOR), rate(m.PREDICTED_S, COORDINATOR)),
    ),
    Panel("Inexact corrections and drafts", "short", to="fleet").showing(
        "Since the coordinators' start. Giving up makes a response inexact, and usage says so.",
        Query(total(m.CANDIDATE_FALLBACKS, COORDINATOR), "no candidate accepted"),
        Query(total(m.CORRECTIONS_GIVEN_UP, COORDINATOR), "corrections given up"),
        Query(total(m.DRAFTS_GIVEN_UP, COORDINATOR), "drafts given up"),
    ),
)

_JUDGED = row(
    "Semantic verification",
    Panel("Judged mismatches", "short", Shape.STACK, width=12).showing(
        "Per second; passed: the draft token is kept instead of the target's.",
        Query(rate(m.JUDGED_TOKENS, COORDINATOR, by="outcome"), "{{outcome}}"),
    ),
    Panel("Heads that drifted", "short", warn=1.0, alarm=1.0, width=12).showing(
        "1: the head passes another share than at calibration, and is switched off.",
        Query(f"max by (model) ({series(m.HEAD_DRIFT, COORDINATOR)})", "{{model}}"),
    ),
)

BOARD = Board(
    "speculation",
    "Outrider: speculation",
    "Whether drafting pays, choices, and costs.",
    (Variable.CLUSTER, Variable.COORDINATOR),
    (_AS_IN_VLLM, _CHOICE, _COST, _JUDGED),
)
