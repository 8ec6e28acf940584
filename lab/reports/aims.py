"""The table of ``outrider simulate aims``."""

from collections.abc import Sequence

from cluster.reports.tables import percent, show_table
from lab.simulation.aims import AimSummary

_HEADER = ("setting", "fcfs", "slo_aware", "x fcfs", "aim", "reached", "of the bound", "first token p99", "same load")


def show_aims(found: Sequence[AimSummary], seeds: Sequence[int]) -> None:
    """Print devices by seed, and means."""
    rows = [
        (
            one.name,
            " ".join(map(str, one.fcfs_devices)),
            " ".join(map(str, one.devices)),
            f"{one.multiple:.2f} ({min(one.multiples):.2f}-{max(one.multiples):.2f})",
            f"{one.aim:g}",
            "yes" if one.reached else "no",
            percent(one.bound_share),
            f"{one.first_token_p99_s:.2f} s ({one.fcfs_first_token_p99_s:.2f} s)",
            f"{one.same_load_first_token_p99_s:.2f} s",
        )
        for one in found
    ]
    note = (
        f"Seeds {', '.join(map(str, seeds))}. First tokens: slo_aware with its own devices (fcfs with its), and with "
        "those that fcfs serves."
    )
    show_table("devices with their promise kept, against first come first served with kept KV", _HEADER, rows, note)
