"""Rendering of ``outrider top``. Pure: takes two polled statuses, returns a ``rich`` renderable."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from actors.coordinator.activity import CoordinatorActivity, activity_between
from actors.messages import CoordinatorReport
from cluster.service_status import ServiceStatus

_BAR_CELLS = 30
_PHASES = ("draft", "link", "queue", "verify", "orchestration")
_STATE_STYLES = {"ready": "green", "starting": "yellow", "restarting": "yellow", "suspect": "yellow", "refused": "red"}
_RATES = (
    ("committed tokens/s", CoordinatorActivity.tokens_per_s, "{:.1f}"),
    ("rounds/s", CoordinatorActivity.rounds_per_s, "{:.1f}"),
    ("accepted fraction", CoordinatorActivity.accepted_fraction, "{:.3f}"),
    ("committed tokens per round", CoordinatorActivity.tokens_per_round, "{:.2f}"),
)


def view(before: ServiceStatus, now: ServiceStatus, elapsed_s: float, url: str) -> RenderableType:
    """Render what the service did between two polls, ``elapsed_s`` apart, of ``url``."""
    uptime_s = max((c.uptime_s for c in now.coordinators), default=0.0)
    recent = activity_between(before.coordinators, now.coordinators, elapsed_s)
    whole = activity_between(None, now.coordinators, uptime_s)
    header = Text.assemble((now.model, "bold"), f"  {url}  up {duration(uptime_s)}")
    return Group(
        header,
        "",
        _drafters(now),
        *_gateways(now),
        "",
        _coordinators(now, recent),
        "",
        _rates(recent, whole),
        "",
        _phases(recent, whole),
        *_promises(now),
    )


def duration(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{h:02}:{m:02}:{s:02}"


def _drafters(now: ServiceStatus) -> Table:
    table = _table("Drafter", "Group", "State", "Leases", "Reason")
    table.columns[-1].no_wrap = False
    for drafter in now.drafters:
        held = f"{drafter.generations}/{drafter.capacity}"
        table.add_row(Text(drafter.name), Text(drafter.group), _state(drafter.state), held, Text(drafter.reason or ""))
    if not now.drafters:
        table.add_row("none")
    return table


def _gateways(now: ServiceStatus) -> list[RenderableType]:
    """Gateways and the devices that have dialled in; nothing where there are none."""
    if not now.gateways:
        return []
    gateways = _table("Gateway", "Address", "Devices", "Refused", "Fault")
    for gateway in now.gateways:
        refused = ", ".join(f"{count} {reason}" for reason, count in sorted(gateway.refused.items()) if count)
        texts = (gateway.name, gateway.address, str(gateway.devices), refused, gateway.fault or "")
        gateways.add_row(*map(Text, texts))
    devices = _table("Device", "Drafter", "Gateway", "kbit down", "kbit up")
    for drafter in now.drafters:
        if (dialled := drafter.dialled) is not None:
            bits = (f"{count / 1e3:.0f}" for count in (dialled.down_bits, dialled.up_bits))
            devices.add_row(Text(dialled.device), Text(drafter.name), Text(dialled.gateway), *bits)
    return ["", gateways, "", devices] if devices.row_count else ["", gateways]


def _coordinators(now: ServiceStatus, recent: CoordinatorActivity) -> Table:
    table = _table(
        "Coordinator", "Verifier", "Mode", "Idle", "Active", "Queued", "Blocks waiting", "KV used", "Evicted"
    )
    for c in now.coordinators:
        idle = min(1.0, recent.verifier_idle_s[c.id] / recent.span_s) if recent.span_s else None
        table.add_row(
            Text(c.id),
            _state(c.verifier),
            _mode(c),
            _number(idle, "{:.0%}"),
            str(c.generations),
            str(c.queued_generations),
            str(c.queued_blocks),
            _kv_use(c),
            "-" if c.kv is None else str(c.kv.evictions),
        )
    if not now.coordinators:
        table.add_row("none")
    return table


def _mode(coordinator: CoordinatorReport) -> str:
    """Whether its generations draft; a mode in use other than the kept one is on trial."""
    tuner = coordinator.regime
    if tuner is None:
        return "-"
    return tuner.arm if tuner.arm == tuner.kept else f"{tuner.kept} (tries {tuner.arm})"


def _kv_use(coordinator: CoordinatorReport) -> str:
    kv = coordinator.kv
    if kv is None:
        return "-"
    return f"{kv.used_blocks / max(1, kv.total_blocks):.0%} of {kv.total_blocks * kv.block_tokens} tokens"


def _rates(recent: CoordinatorActivity, whole: CoordinatorActivity) -> Table:
    table = _table("", "Now", "Since start")
    for title, rate, form in _RATES:
        table.add_row(title, _number(rate(recent), form), _number(rate(whole), form))
    return table


def _phases(recent: CoordinatorActivity, whole: CoordinatorActivity) -> Table:
    drawn, title = (recent, "Now") if recent.rounds else (whole, "Since start")
    table = _table("ms per round", "Now", "Since start", title)
    longest = max((drawn.phase_ms(phase) or 0.0 for phase in drawn.phase_seconds), default=0.0)
    for phase in sorted(whole.phase_seconds, key=_phase_order):
        cells = round(_BAR_CELLS * (drawn.phase_ms(phase) or 0.0) / longest) if longest else 0
        numbers = (_number(span.phase_ms(phase), "{:.2f}") for span in (recent, whole))
        table.add_row(Text(phase), *numbers, Text("█" * cells, "cyan"))
    return table


def _promises(now: ServiceStatus) -> list[RenderableType]:
    """Rounds of responses with a promised speed, since start; nothing if there are none."""
    classes = sorted({name for coordinator in now.coordinators for name in coordinator.slo})
    if not classes:
        return []
    table = _table("SLO class", "Rounds", "Late", "by queue", "by compute", "Commits behind")
    for name in classes:
        counted = [coordinator.slo[name] for coordinator in now.coordinators if name in coordinator.slo]
        rounds = sum(c.rounds for c in counted)
        late = (sum(c.late_queue for c in counted), sum(c.late_compute for c in counted))
        shares = [f"{count / max(1, rounds):.1%}" for count in (sum(late), *late)]
        table.add_row(Text(name), str(rounds), *shares, str(sum(c.behind for c in counted)))
    return ["", table]


def _phase_order(phase: str) -> int:
    return _PHASES.index(phase) if phase in _PHASES else len(_PHASES)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _state(name: str) -> Text:
    return Text(name, _STATE_STYLES.get(name, ""))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
