"""``outrider bench paper wisv --parts frontier cluster``: with the configured pair and its decision head."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace

from cluster.local import running
from cluster.option_types import positive_int, share
from cluster.options import read_config
from lab.bench.papers.wisv_pair import reports
from lab.bench.papers.wisv_pair.cluster import LINKS, WINDOWS, Answer, measured, rows, spread
from lab.bench.papers.wisv_pair.frontier import BLOCKS, HEAD, UNAWARE, fly_frontier, frontier, judging_times
from lab.options import existing_file
from lab.training.head.pair import EncodedTask, LoadedPair, Pair, PairSpec, ask, load_pair, paged
from lab.training.tasks.loading import load_tasks
from lab.training.tasks.task import Task, split_tasks
from outrider.assembly.heads import read_heads
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.contracts.exchanged import FloatField
from outrider.models.head_file import Head, read_head
from outrider.models.pair_file import check_pair

_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tasks", default="embedded", help="embedded, or a JSON Lines file; of these the test split")
    add("--most-tasks", type=positive_int, default=None, help="of the test split (default: all; the cluster answers 4)")
    add("--max-new-tokens", type=positive_int, default=224, help="length limit of an answer (default: %(default)s)")
    add(
        "--windows",
        type=positive_int,
        nargs="+",
        default=None,
        help="K (default: frontier 24; cluster the table's, 2 and 4)",
    )
    add("--thresholds", type=share, nargs="+", default=_THRESHOLDS, help="of the frontier (default: %(default)s)")
    add(
        "--unaware",
        type=existing_file,
        default=None,
        metavar="FILE",
        help="a head learnt without relabelling, to compare",
    )
    add("--batch", type=positive_int, default=64, help="texts computed at once for the frontier (default: %(default)s)")
    add("--links", nargs="+", default=list(LINKS), choices=list(LINKS), metavar="NAME", help=f"of {', '.join(LINKS)}")


def frontier_part(args: argparse.Namespace) -> dict[str, object]:
    head, models, asked, pair, windows, field = _loaded(args)
    heads = {HEAD: head} | ({UNAWARE: read_head(args.unaware)} if args.unaware else {})
    for each in heads.values():
        check_pair(each.info, target_hash=models.target.model_hash, drafter_hash=models.drafter.model_hash)
    thresholds = sorted({*args.thresholds, head.info.threshold})
    found = [frontier(pair, asked, heads, window, thresholds, batch=args.batch, field=field) for window in windows]
    for one in found:
        reports.show_frontier(one)
    times = judging_times(pair, asked, head.decisions)
    reports.show_judging(times)
    if args.plots is not None:
        from lab.bench.papers.wisv_pair.plots import plot_thresholds  # noqa: PLC0415 (needs matplotlib)

        plot_thresholds(args.plots / "wisv-pair-thresholds.png", found[0])
    return {"head": head.info, "frontiers": found, "judging": times}


def fly_part(args: argparse.Namespace) -> dict[str, object]:
    head, _, asked, pair, windows, _ = _loaded(args)
    found = [fly_frontier(pair, asked, head, window, batch=args.batch) for window in windows]
    for one in found:
        reports.show_frontier(one)
    return {"fly": found}


def _loaded(
    args: argparse.Namespace,
) -> tuple[Head, LoadedPair, list[EncodedTask], Pair, Sequence[int], FloatField]:
    config, head = _configured(args)
    group = config.drafters[0]
    models = load_pair(PairSpec(config.model.target, group.model, config.model.dtype, group.dtype, "cpu"))
    tasks, windows = _tasks(args.tasks, args.most_tasks), args.windows or [24]
    asked = ask(models, tasks, args.max_new_tokens)
    longest = max(len(one.prompt_ids) for one in asked) + args.max_new_tokens + max(windows)
    pair, field = paged(models, max(args.batch, *BLOCKS), longest), config.wire.format(2).hidden_field
    return head, models, asked, pair, windows, field


def cluster_part(args: argparse.Namespace) -> dict[str, object]:
    config, head = _configured(args)
    if any(group.link is not None for group in config.drafters):
        raise ConfigError("drafters", "link: null (the bench sets the links itself)", config.drafters)
    windows = args.windows or WINDOWS
    tasks = spread(_tasks(args.tasks, None), args.most_tasks or 4)
    # As in the paper: no prompt lookup, and no verification while a device drafts.
    speculation = replace(
        config.speculation, k_max=max(windows), lookup_window=0, drafts_ahead=False, modes=("draft",), policy="cheapest"
    )
    answers = asyncio.run(_asked(replace(config, speculation=speculation), args, tasks, windows))
    found = rows(answers)
    reports.show_rows(found)
    if args.plots is not None:
        from lab.bench.papers.wisv_pair.plots import plot_latencies  # noqa: PLC0415 (needs matplotlib)

        plot_latencies(args.plots / "wisv-pair-latency.png", found)
    return {"head": head.info, "rows": found, "answers": answers}


async def _asked(
    config: Config, args: argparse.Namespace, tasks: Sequence[Task], windows: Sequence[int]
) -> list[Answer]:
    with running(config) as url:
        return await measured(url, config, args.links, tasks, windows, args.max_new_tokens)


def _configured(args: argparse.Namespace) -> tuple[Config, Head]:
    config = read_config(args)
    heads = read_heads(config)
    if not config.drafters or config.drafters[0].model not in heads:
        raise ConfigError("drafters[0].decision_head", "a decision head (see `outrider train head`)", None)
    return config, heads[config.drafters[0].model]


def _tasks(source: str, most: int | None) -> list[Task]:
    _, _, test = split_tasks(load_tasks(source))
    return list(test) if most is None else spread(test, most)
