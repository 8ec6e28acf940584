"""``outrider bench stops``: ways to end a draft on a real cluster: tokens per second, and wasted drafting.

Starts a service for each stop rule, with emulated devices and passes (``drafters[].emulated_step_ms`` and other
settings, by ``--set``), and loads it with a number of clients at once: fixed windows, including 0, the service's own
choice, and each rule. WISP's ablations (Tables 5 and 6, Figure 1) are of this kind. ``--bound`` counts, without a
cluster, what its Theorem 1 bounds, on drafts recorded along the target's responses.
"""

import argparse
import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from cluster.local import running
from cluster.option_types import natural, new_file, positive_int, share
from cluster.options import add_config_options, read_config
from lab.bench.harness.fewer_layers import without_layers
from lab.bench.harness.record import write_record
from lab.bench.harness.recorded_drafts import RecordSettings
from lab.bench.stops.bound import drafts_along, waste, whole_rounds
from lab.bench.stops.measure import Arm, Asking, Figures, arms, measure, served_by
from lab.bench.stops.tables import plot_waste, show, show_bound
from lab.options import not_negative
from lab.training.predictor.pair_names import pair_names
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.contracts.verifying import AcceptanceRule
from outrider.drafting.acceptance import AcceptancePredictor, ConfidenceLogistic
from outrider.models.predictors import load_predictors
from outrider.protocols.registry import PROTOCOLS


def main(argv: Sequence[str]) -> None:
    args = _parser().parse_args(argv)
    config = read_config(args)
    if args.skip_layers:
        config = _drafting_without(config, args.skip_layers)
    if args.bound:
        _bound(config, args)
        return
    if config.drafter_count == 0:
        raise ConfigError("drafters", "at least one", config.drafters)
    if 0 not in args.windows:
        raise ConfigError("--windows", "0 among them", args.windows)
    asking = Asking(config.model.public_name, args.protocol, args.temperature, args.tokens, args.responses)
    chosen = [arm for arm in arms(args.windows, args.longest) if not args.arms or arm.name in args.arms]
    found: list[Figures] = []
    for repeat in range(args.repeats):
        for rule in dict.fromkeys(arm.rule for arm in chosen):
            work = (served_by(config, rule), [arm for arm in chosen if arm.rule == rule], asking, args.clients, repeat)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # one cluster a process (Ray forks)
                found += pool.submit(_served, *work).result()
            if args.json is not None:  # service by service: an interrupt keeps what was measured
                write_record(args.json, args, {"figures": found, "emulated": _emulated(config)})
    show(found)
    if args.plot is not None:
        plot_waste(args.plot, found)


def _served(
    config: Config, chosen: Sequence[Arm], asking: Asking, clients: Sequence[int], repeat: int
) -> list[Figures]:
    async def measured(url: str) -> list[Figures]:
        return [await measure(url, arm, asking, count, repeat) for count in clients for arm in chosen]

    with running(config) as url:
        return asyncio.run(measured(url))


def _bound(config: Config, args: argparse.Namespace) -> None:
    settings = RecordSettings(config.model.target, config.drafters[0].model, prompts=args.prompts, k_max=args.longest)
    rounds = whole_rounds(drafts_along(settings, _predictor(config)))
    bound = [waste(rounds, threshold) for threshold in args.thresholds]
    show_bound(bound, len(rounds), args.longest)
    if args.json is not None:
        write_record(args.json, args, {"bound": bound, "rounds": len(rounds)})


def _predictor(config: Config) -> AcceptancePredictor:
    """Predictor for greedy rounds: that of the first group's pair, else the draft model's confidence."""
    group = config.drafters[0]
    names = pair_names(config.model.target, group.model)
    found = load_predictors(group.stopping.predictor, target_hash=names.target_hash, drafter_hash=names.drafter_hash)
    return found.get(AcceptanceRule.GREEDY, ConfidenceLogistic())


def _drafting_without(config: Config, layers: Sequence[int]) -> Config:
    """The same devices with the target without these layers as draft model; files made for a pair are dropped."""
    model = str(without_layers(config.model.target, layers))
    return replace(config, drafters=tuple(replace(group, model=model, decision_head=None) for group in config.drafters))


def _emulated(config: Config) -> dict[str, object]:
    verifiers, groups = config.verifiers, config.drafters
    return {
        "step_ms": [group.emulated_step_ms for group in groups],
        "models": [group.model for group in groups],
        "devices": config.drafter_count,
        "pass_ms": verifiers.emulated_pass_ms,
        "row_ms": verifiers.emulated_row_ms,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench stops", description=__doc__)
    add_config_options(parser)
    add = parser.add_argument
    add("--clients", type=positive_int, nargs="+", default=[1, 6], help="at once (default: %(default)s)")
    add(
        "--windows",
        type=natural,
        nargs="+",
        default=[0, 2, 4, 8],
        help="that are fixed, 0 among them (default: %(default)s)",
    )
    add("--longest", type=positive_int, default=8, help="draft that a rule may end (default: %(default)s)")
    add("--arms", nargs="*", default=[], metavar="NAME", help="some of them, as the table calls them (default: all)")
    add("--skip-layers", type=natural, nargs="*", default=[], metavar="N", help="draft with the target without these")
    chains = [name for name, protocol in PROTOCOLS.items() if protocol.chains and not protocol.trees]
    add(
        "--protocol",
        choices=chains,
        default="dssd",
        help="of chains: trees are drafted whole (default: %(default)s)",
    )
    add("--temperature", type=not_negative, default=0.0, help="of all requests (default: %(default)s)")
    add("--tokens", type=positive_int, default=100, help="of a response, at most (default: %(default)s)")
    add("--responses", type=positive_int, default=2, help="of each client (default: %(default)s)")
    add("--repeats", type=positive_int, default=1, help="of all (default: %(default)s)")
    add("--bound", action="store_true", help="count what WISP's Theorem 1 bounds")
    add("--thresholds", type=share, nargs="+", default=[0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0], help="of that")
    add("--prompts", type=positive_int, default=64, help="of it, too (default: %(default)s)")
    add("--plot", type=new_file, default=None, metavar="FILE", help="draw tokens per second over waste (WISP Figure 1)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    return parser
