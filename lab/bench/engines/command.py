"""``outrider bench engines``: output tokens per second of clusters with either engine, and of their alternatives.

Measured are whole Outrider clusters with either engine, vLLM's own server, and vLLM's own speculation (a draft model,
the same pair; n-grams; suffixes), at several numbers of clients: the same chats over HTTP, a mix of prompts by
stated shares. All servers run, one is loaded at a time, and they take turns in a changing order. Reported are medians
and ranges over turns, and for each comparison the ratio with its 95 % interval. A failing arm is reported, and the
others continue.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from cluster.option_types import natural, new_file, positive_int
from cluster.reports.tables import show_table
from lab.bench.engines.served import Load, measured
from lab.bench.engines.servers import CENTRAL, OUTRIDER, VLLM, ServingOptions, all_servers, export_drafter, outrider_arm
from lab.bench.harness.prompts import KINDS, USUAL_SHARES, parse_share, shares_of
from lab.bench.harness.record import write_record
from lab.bench.harness.statistics import ArmFigures, Estimate, Sample, figures, ratio
from lab.options import not_negative
from outrider.engines.registry import VERIFIERS
from outrider.models.embedded import DRAFTER_NAME, embedded_drafter_path
from outrider.models.folders import EMBEDDED, resolve_folder

_GOODPUT = "tokens_per_s"


@dataclass(frozen=True, slots=True)
class Compared:
    """One arm against the fastest of its rivals."""

    clients: int
    arm: str
    rival: str
    turns: int  # number of turns in which both were measured
    ratio: Estimate  # of their tokens per second over these


def compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> list[Compared]:
    """By number of clients: own choice against no drafts and against the best window; prompt lookup against none.

    And all of these against the better of vLLM alone, and own choices against the best of vLLM's ways.
    """
    found: list[Compared] = []
    for clients in dict.fromkeys(sample.clients for sample in samples):
        made = _made([sample for sample in samples if sample.clients == clients])
        for arm, rivals in _contests(made, windows):
            known = [rival for rival in rivals if made.get(rival, {}).keys() & made[arm].keys()]
            if not known:
                continue
            best = max(known, key=lambda rival: _mean(made[rival]))
            if any((one.clients, one.arm, one.rival) == (clients, arm, best) for one in found):
                continue  # the best window is no drafts
            turns = sorted(made[arm].keys() & made[best].keys())
            over = ratio([made[arm][turn] for turn in turns], [made[best][turn] for turn in turns])
            found.append(Compared(clients, arm, best, len(turns), over))
    return found


def _made(samples: Sequence[Sample]) -> dict[str, dict[int, float]]:
    """Tokens per second by arm and turn, where measured."""
    made: dict[str, dict[int, float]] = {}
    for sample in samples:
        if not sample.failure and _GOODPUT in sample.values:
            made.setdefault(sample.arm, {})[sample.turn] = sample.values[_GOODPUT]
    return made


def _mean(by_turn: dict[int, float]) -> float:
    return sum(by_turn.values()) / len(by_turn)


def _contests(made: dict[str, dict[int, float]], windows: Sequence[int | None]) -> list[tuple[str, list[str]]]:
    central, any_vllm = ([arm for arm in made if arm.startswith(name)] for name in (CENTRAL, VLLM))
    engines = dict.fromkeys(arm.split(", ")[1] for arm in made if arm.startswith(f"{OUTRIDER}, "))
    contests = []
    for engine in engines:
        own, undrafted = outrider_arm(engine, None), outrider_arm(engine, 0)
        fixed = [outrider_arm(engine, window) for window in windows if window is not None]
        looking = [arm for arm in made if arm.startswith(f"{own}, lookup ")]
        contests += [(own, [undrafted]), *([(own, fixed)] if len(fixed) > 1 else []), (undrafted, central)]
        contests += [(arm, [own]) for arm in looking]
        contests += [(arm, rivals) for arm in (own, *looking) for rivals in (central, any_vllm)]
    return [(arm, rivals) for arm, rivals in contests if arm in made]


_COLUMNS = {
    "tokens/s": "tokens_per_s",
    "of one request": "client_tokens_per_s",
    "TTFT ms": "ttft_ms",
    "TPOT ms": "tpot_ms",
    "acceptance": "acceptance",
    "unanswered": "unanswered",
}


def show_served(samples: Sequence[Sample]) -> None:
    found = sorted(figures(samples), key=lambda one: one.clients)
    title = "service, output tokens per second: median [smallest-largest] over turns"
    rows = [(one.arm, one.clients, *(_shown(one, name) for name in _COLUMNS.values())) for one in found]
    show_table(title, ("arm", "clients", *_COLUMNS), rows)
    _show_kinds(found)
    for arm, failure in {one.arm: one.failure for one in found if one.failure}.items():
        print(f"  FAILED {arm}: {failure}")


def _show_kinds(found: Sequence[ArmFigures]) -> None:
    kinds = [kind for kind in KINDS if any(_of(kind) in one.values for one in found)]
    if kinds:
        rows = [(one.arm, one.clients, *(_shown(one, _of(kind)) for kind in kinds)) for one in found]
        title = "tokens per second of one request, by kind of prompt: median [smallest-largest] over turns"
        show_table(title, ("arm", "clients", *kinds), rows)


def _of(kind: str) -> str:
    return f"{kind}_tokens_per_s"


def show_compared(samples: Sequence[Sample], windows: Sequence[int | None]) -> None:
    """Print the service's aims: tokens per second of one arm over those of another, turn by turn."""
    found = compared(samples, windows)
    rows = [(one.arm, one.rival, one.clients, one.turns, one.ratio) for one in found]
    show_table(
        "output tokens per second over those of the best rival [95 %]",
        ("arm", "rival", "clients", "turns", "ratio"),
        rows,
    )


def _shown(one: ArmFigures, name: str) -> str:
    if name not in one.values:
        return "-"
    return f"{one.values[name].median:.2f}" if name == "acceptance" else str(one.values[name])


def main(argv: Sequence[str]) -> None:
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the servers end as well
    served = _service(args)
    show_served(served)
    show_compared(served, args.windows)
    if args.json is not None:
        write_record(args.json, args, {"samples": {"service": served}})


def _service(args: argparse.Namespace) -> list[Sample]:
    load = Load(
        tuple(args.clients), args.requests, args.tokens, args.turns, temperature=args.temperature, shares=args.mix
    )
    options = ServingOptions(
        target=args.target,
        dtype=args.dtype,
        threads=args.threads,
        central_threads=tuple(args.central_threads or [args.threads]),
        draft_tokens=tuple(args.draft_tokens),
        windows=tuple(args.windows),
        lookups=tuple(args.lookups),
        ngram_tokens=tuple(args.ngram_tokens),
        suffix_tokens=tuple(args.suffix_tokens),
    )
    with TemporaryDirectory(prefix="outrider-engines-") as scratch:
        folder = resolve_folder(args.target)
        file = embedded_drafter_path() if args.drafter in (EMBEDDED, DRAFTER_NAME) else Path(args.drafter)
        drafter = export_drafter(file, folder, Path(scratch) / "drafter")
        servers = all_servers(args.engines, folder, drafter, options)
        cells = load.turns * len(load.clients) * sum(len(server.arms) for server in servers)
        with tqdm(total=cells, desc="service", disable=None) as bar:

            def on_cell(arm: str) -> None:
                bar.set_postfix_str(arm)
                bar.update()

            return list(measured(servers, load, on_cell))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider bench engines", description=__doc__)
    add = parser.add_argument
    add("--target", default=EMBEDDED, help="the embedded one, or a folder in Hugging Face format")
    add("--drafter", default=EMBEDDED, help="the embedded one, or a file made by `outrider distill`")
    add("--dtype", default="float32", choices=["float32", "bfloat16"])
    add("--threads", type=positive_int, default=1, help="of computation, of each engine (default: %(default)s)")
    add("--clients", type=positive_int, nargs="+", default=[1, 4, 16, 32], help="numbers of (default: %(default)s)")
    add("--requests", type=positive_int, default=2, help="of each client in a turn (default: %(default)s)")
    add("--tokens", type=positive_int, default=40, help="of every answer (default: %(default)s)")
    add("--turns", type=positive_int, default=2, help="of every arm at each number of clients (default: %(default)s)")
    add("--engines", nargs="+", choices=sorted(VERIFIERS), default=sorted(VERIFIERS), help="of Outrider (default: all)")
    add("--windows", type=_window, nargs="+", default=[None, 0], help="of Outrider; auto is its own choice")
    add(
        "--draft-tokens",
        type=positive_int,
        nargs="*",
        default=[2],
        help="per step, of vLLM's own speculation; none: no such arm",
    )
    add(
        "--lookups",
        type=natural,
        nargs="+",
        default=[0, 8],
        help="longest looked-up drafts of Outrider's clusters; 0: none",
    )
    add("--ngram-tokens", type=positive_int, nargs="*", default=[4], help="per step, of vLLM's n-gram speculation")
    add("--suffix-tokens", type=positive_int, nargs="*", default=[8], help="per step, of vLLM's suffix decoding")
    usual = [*USUAL_SHARES.items()]
    shown = " ".join(f"{kind}={share:g}" for kind, share in usual)
    add(
        "--mix", type=parse_share, nargs="+", default=usual, metavar="KIND=SHARE", help=f"of prompts (default: {shown})"
    )
    add(
        "--temperature",
        type=not_negative,
        default=0.0,
        help="above 0 with a fixed seed for each request that Outrider gets",
    )
    add(
        "--central-threads",
        type=positive_int,
        nargs="+",
        default=None,
        help="of vLLM's own servers (default: --threads)",
    )
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    try:
        args.mix = shares_of(args.mix)
    except ValueError as error:
        parser.error(str(error))
    return args


def _window(text: str) -> int | None:
    return None if text == "auto" else natural(text)
