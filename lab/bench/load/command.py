"""``outrider bench load``: open-loop Poisson load of mixed requests against a running service.

Requests are drawn in advance from the seed (``lab.bench.load.plan``), so that a slow service does not get fewer, and a
run can be repeated. ``lab.bench.load.report`` defines the figures.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from lab.bench.harness.options import positive, positive_int
from lab.bench.harness.record import write_record
from lab.bench.load import report as load_report
from lab.bench.load.client import drive, endpoint_of, open_client, served_model
from lab.bench.load.plan import LoadPlan, plan_load
from lab.bench.load.report import Answer, Summary, as_text, kept_shares, summarise, time_to_first_token_s

_DURATION_S = 60.0


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its figures."""
    asyncio.run(_run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench load", description=__doc__)
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="of the service")
    add("--model", default=None, help="default: the first one served")
    add("--rate", type=positive, nargs="+", default=[1.0], help="requests per second, one run for each")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--duration-s", type=positive, default=None, help=f"of each run (default: {_DURATION_S:g})")
    length.add_argument("--requests", type=positive_int, default=None, help="of each run")
    add("--seed", type=int, default=0, help="of arrivals and requests")
    add("--max-tokens", type=positive_int, default=128, help="the longest output; the median is a third of it")
    add("--window", type=int, default=None, help="draft tokens per round (default: the service's choice)")
    add("--classes", nargs="+", default=[], metavar="CLASS", help="SLO classes that requests ask for, all alike often")
    add("--timeout-s", type=positive, default=300.0, help="from sending a request to the end of its answer")
    add("--json", type=Path, default=None, metavar="FILE", help="write settings, figures and every request")
    return parser


async def _run(args: argparse.Namespace) -> None:
    duration_s = args.duration_s if args.requests or args.duration_s else _DURATION_S
    runs: list[dict[str, object]] = []
    summaries: list[Summary] = []
    async with open_client(args.url, args.timeout_s) as client:
        model = args.model or await served_model(client)
        endpoint = await endpoint_of(client, model, args.timeout_s)
        print(f"{model} at {args.url}, seed {args.seed}, outputs of at most {args.max_tokens} tokens", flush=True)
        for index, rate_per_s in enumerate(args.rate):
            plan = plan_load(
                rate_per_s,
                seed=(args.seed, index),  # another load at each rate, or the second would find the first one's KV
                max_tokens=args.max_tokens,
                duration_s=duration_s,
                requests=args.requests,
                window=args.window,
                classes=args.classes,
            )
            with tqdm(total=len(plan.requests), desc=f"{rate_per_s:g}/s", disable=None, leave=False) as bar:
                answers = await drive(endpoint, plan, bar.update)
            summary = summarise(rate_per_s, plan.span_s, answers)
            print(as_text(summary), flush=True)
            summaries.append(summary)
            runs.append(_run_json(summary, plan, answers))
            if args.json is not None:  # after each rate, so that an interrupt loses one
                content = {"definitions": load_report.__doc__, "runs": runs}
                write_record(args.json, {**vars(args), "model": model}, content)
    if args.classes:
        for summary, share in zip(summaries, kept_shares(summaries), strict=True):
            told = "the lowest rate" if share is None else f"{share:.2f} of the best at any lower rate"
            print(f"{summary.rate_per_s:g}/s: kept {summary.kept_per_s:.3f} responses/s, {told}")


def _run_json(summary: Summary, plan: LoadPlan, answers: Sequence[Answer]) -> dict[str, object]:
    requests = [
        {**asdict(answer), "max_tokens": request.body["max_tokens"], "ttft_s": time_to_first_token_s(answer)}
        for request, answer in zip(plan.requests, answers, strict=True)
    ]
    return {"summary": asdict(summary), "requests": requests}
