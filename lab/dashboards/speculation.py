"""Board: whether drafting pays; all that vLLM's own dashboard shows of it, and more."""

from lab.dashboards.board import Board, Panel, Query, Row, Shape, Variable
from lab.dashboards.promql import CLUSTER, COORDINATOR, buckets, quantile, rate, ratio, series, total
from serve_app import metrics as m

_ACCEPTED = rate(m.ACCEPTED_TOKENS, COORDINATOR)
_DRAFTED = rate(m.DRAFT_TOKENS, COORDINATOR)
_DRAFTS = rate(m.DRAFTS, COORDINATOR)

_AS_IN_VLLM = Row(
    "As in vLLM",
    (
        Panel(
            "Acceptance now",
            (Query(ratio(_ACCEPTED, _DRAFTED)),),
            "percentunit",
            "Draft tokens accepted of those verified. What pays depends on link and drafter; see the modes below.",
            Shape.NUMBER,
            warn=0.4,
            alarm=0.2,
            width=6,
        ),
        Panel(
            "Accepted length now",
            (Query(f"1 + {_ACCEPTED} / {_DRAFTS}"),),
            "short",
            "Tokens that a round with a draft commits, the verifier's own token included.",
            Shape.NUMBER,
            width=6,
        ),
        Panel(
            "Of output from drafts",
            (Query(ratio(rate(m.ACCEPTED_TOKENS, CLUSTER), rate(m.GENERATION_TOKENS, CLUSTER))),),
            "percentunit",
            "Accepted draft tokens, of all tokens sent to clients.",
            Shape.NUMBER,
            width=6,
        ),
        Panel(
            "Drafted now",
            (Query(_DRAFTED),),
            "short",
            "Draft tokens verified per second.",
            Shape.NUMBER,
            width=6,
        ),
        Panel(
            "Acceptance",
            (
                Query(ratio(_ACCEPTED, _DRAFTED), "all"),
                Query(
                    ratio(
                        rate(m.ACCEPTED_TOKENS, COORDINATOR, by="protocol"),
                        rate(m.DRAFT_TOKENS, COORDINATOR, by="protocol"),
                    ),
                    "{{protocol}}",
                ),
            ),
            "percentunit",
            "Over time and by protocol; lookup is drafted from the text itself, without a device.",
        ),
        Panel(
            "Acceptance by position",
            (
                Query(
                    f"sum by (position) (rate({series(m.ACCEPTED_AT, COORDINATOR)}[$__rate_interval]))"
                    f" / on () group_left {_DRAFTS}",
                    "{{position}}",
                ),
            ),
            "percentunit",
            "Share of drafts whose token at this position (from 0) was accepted. The last is high: longer may pay.",
        ),
        Panel(
            "Accepted length",
            (
                Query(f"1 + {_ACCEPTED} / {_DRAFTS}", "all"),
                Query(
                    f"1 + {rate(m.ACCEPTED_TOKENS, COORDINATOR, by='protocol')}"
                    f" / {rate(m.DRAFTS, COORDINATOR, by='protocol')}",
                    "{{protocol}}",
                ),
            ),
            "short",
            "Tokens that a round with a draft commits.",
        ),
        Panel(
            "Drafted and accepted per second",
            (Query(_DRAFTED, "drafted"), Query(_ACCEPTED, "accepted"), Query(_DRAFTS, "drafts")),
            "short",
            "The difference between drafted and accepted was wasted.",
        ),
        Panel(
            "Prompt lookup",
            (Query(rate(m.LOOKUP_TOKENS, COORDINATOR, by="outcome"), "{{outcome}}"),),
            "short",
            "Draft tokens of n-gram drafts, per second.",
            Shape.STACK,
        ),
        Panel(
            "Drafted a round",
            (Query(f"{_DRAFTED} / {_DRAFTS}", "verified"),),
            "short",
            "Draft tokens verified in a round with a draft: windows, less what was trimmed before verification.",
        ),
    ),
)

_CHOICE = Row(
    "Choices",
    (
        Panel(
            "Windows",
            (Query(buckets(m.DRAFT_WINDOW, COORDINATOR), "{{le}}"),),
            "short",
            "Rounds per second by draft tokens, from devices or prompt lookup.",
            Shape.HEAT,
        ),
        Panel(
            "Rounds by protocol",
            (Query(rate(m.ROUNDS, COORDINATOR, by="protocol"), "{{protocol}}"),),
            "short",
            "Per second; none: without a draft.",
            Shape.STACK,
        ),
        Panel(
            "Speculation mode in use",
            (Query(total(m.TUNER_MODE, COORDINATOR, by="arm"), "{{arm}}"),),
            "short",
            "Coordinators by the mode they use. none and lookup use no devices. No value: windows are fixed.",
            Shape.STACK,
        ),
        Panel(
            "Speed by speculation mode",
            (Query(f"avg by (arm) ({series(m.TUNER_REWARD, COORDINATOR)})", "{{arm}}"),),
            "short",
            "Tokens per second of a response at the present load, as measured by probes.",
        ),
        Panel(
            "Loss by speculation mode",
            (Query(f"avg by (arm) ({series(m.TUNER_LOSS, COORDINATOR)})", "{{arm}}"),),
            "percentunit",
            "Against the mode that is kept. Both modes with devices above 0 for long: drafting is a net loss.",
            warn=0.03,
            alarm=0.3,
            to="link",
        ),
        Panel(
            "Probes and changes",
            (
                Query(rate(m.TUNER_PROBES, COORDINATOR, by="arm"), "probes of {{arm}}"),
                Query(rate(m.TUNER_CHANGES, COORDINATOR), "changes"),
            ),
            "short",
            "Per second. Changes that do not end: two modes are about as fast.",
        ),
        Panel(
            "Cost of probes",
            (Query(ratio(rate(m.TUNER_PROBES_LOST_S, COORDINATOR), rate(m.TUNER_ACTIVE_S, COORDINATOR))),),
            "percentunit",
            "Of the time in which responses were active. About a fiftieth at most.",
            warn=0.02,
            alarm=0.1,
        ),
    ),
)

_COST = Row(
    "Costs",
    (
        Panel(
            "Wasted drafting",
            (Query(rate(m.WASTED_DRAFT_S, COORDINATOR)),),
            "short",
            "Devices' seconds per second spent on tokens that were rejected.",
            width=6,
            to="fleet",
        ),
        Panel(
            "Payload",
            (Query(rate(m.PAYLOAD_BITS, COORDINATOR, by="protocol, direction"), "{{protocol}} {{direction}}"),),
            "bps",
            "Length of the encoded messages of rounds; up is from devices.",
            Shape.STACK,
            width=6,
            to="link",
        ),
        Panel(
            "Bits for a token from a draft",
            (Query(ratio(rate(m.PAYLOAD_BITS, COORDINATOR), _ACCEPTED)),),
            "short",
            "Payload both ways for each accepted draft token.",
            width=6,
            to="link",
        ),
        Panel(
            "Wire bits for a token from a draft",
            (Query(ratio(rate(m.WIRE_BITS, CLUSTER), rate(m.ACCEPTED_TOKENS, CLUSTER, 'protocol!="lookup"'))),),
            "short",
            "All IP packets both ways for each accepted token that a device drafted.",
            width=6,
            to="link",
        ),
        Panel(
            "Where rounds spend time",
            (
                Query(
                    quantile(0.5, m.PHASE_S, COORDINATOR, by="phase"),
                    "{{phase}}",
                ),
            ),
            "s",
            "The median of each phase, of rounds that were asked for.",
            to="verifier",
        ),
        Panel(
            "Measured pass to predicted",
            (Query(ratio(rate(m.MEASURED_S, COORDINATOR), rate(m.PREDICTED_S, COORDINATOR))),),
            "short",
            "1: the cost model by which windows are chosen is right on average.",
            to="verifier",
        ),
        Panel(
            "Inexact corrections and drafts",
            (
                Query(total(m.CANDIDATE_FALLBACKS, COORDINATOR), "no candidate accepted"),
                Query(total(m.CORRECTIONS_GIVEN_UP, COORDINATOR), "corrections given up"),
                Query(total(m.DRAFTS_GIVEN_UP, COORDINATOR), "drafts given up"),
            ),
            "short",
            "Since the coordinators' start. Giving up makes a response inexact, and usage says so.",
            to="fleet",
        ),
    ),
)

_JUDGED = Row(
    "Semantic verification",
    (
        Panel(
            "Judged mismatches",
            (Query(rate(m.JUDGED_TOKENS, COORDINATOR, by="outcome"), "{{outcome}}"),),
            "short",
            "Per second; passed: the draft token is kept instead of the target's.",
            Shape.STACK,
            width=12,
        ),
        Panel(
            "Heads that drifted",
            (Query(f"max by (model) ({series(m.HEAD_DRIFT, COORDINATOR)})", "{{model}}"),),
            "short",
            "1: the head passes another share than at calibration, and is switched off.",
            warn=1.0,
            alarm=1.0,
            width=12,
        ),
    ),
)

BOARD = Board(
    "speculation",
    "Outrider: speculation",
    "Whether drafting pays, choices, and costs.",
    (Variable.CLUSTER, Variable.COORDINATOR),
    (_AS_IN_VLLM, _CHOICE, _COST, _JUDGED),
)
