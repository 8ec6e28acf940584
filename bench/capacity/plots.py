"""Plots of ``outrider bench capacity``, in the manner of WISP's Figures 7 and 8."""

from collections.abc import Sequence
from pathlib import Path

from bench.capacity.figures import Figures
from cluster.reports.plots import COLOURS, describe, figure, save
from cluster.reports.simulation_plots import plot_plane


def plot_over_users(file: Path, figures: Sequence[Figures]) -> None:
    """Late rounds, late responses, late devices and goodput over the number of users (Figure 7)."""
    drawn = figure(10.5, 7.0)
    panels = drawn.subplots(2, 2)
    rounds, responses, devices, goodput = panels.flat
    for policy, colour in zip(_policies(figures), COLOURS, strict=False):
        mine = [one for one in figures if one.policy == policy]
        users = [one.users for one in mine]
        rounds.plot(users, [100 * one.promised.round_violation_rate for one in mine], "o-", color=colour, label=policy)
        responses.plot(users, [100 * one.promised.response_violation_rate for one in mine], "o-", color=colour)
        devices.plot(users, [100 * one.promised.device_violation_rate for one in mine], "o-", color=colour)
        goodput.plot(users, [one.goodput_tokens_per_s for one in mine], "o-", color=colour)
    for axes, what in ((rounds, "rounds"), (responses, "responses"), (devices, "devices")):
        describe(axes, f"Late {what}", "users", "%")
        axes.set_ylim(-3.0, 103.0)
        axes.set_xticks(sorted({one.users for one in figures}))
    describe(goodput, "Goodput", "users", "tokens/s")
    goodput.set_ylim(bottom=0.0)
    goodput.set_xticks(sorted({one.users for one in figures}))
    drawn.legend(*rounds.get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS))
    save(drawn, file)


def plot_planes(file: Path, figures: Sequence[Figures]) -> None:
    """Waiting and verification of every promised round (Figure 8); one panel a measurement."""
    users, policies = sorted({one.users for one in figures}), _policies(figures)
    drawn = figure(3.4 * len(policies), 3.0 * len(users))
    panels = drawn.subplots(len(users), len(policies), squeeze=False, sharex="row", sharey="row")
    for one in figures:
        axes = panels[users.index(one.users)][policies.index(one.policy)]
        plot_plane(axes, one.plane, f"{one.policy}, {one.users} users")
    save(drawn, file)


def _policies(figures: Sequence[Figures]) -> list[str]:
    return list(dict.fromkeys(one.policy for one in figures))
