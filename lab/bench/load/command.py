"""``outrider bench load``: open-loop load of a running service, with the requests and figures of ``vllm bench serve``.

Requests are drawn in advance from the seed (``lab.bench.load.plan``), so that a slow service does not get fewer, and a
run can be repeated. ``lab.bench.load.report`` defines the figures. Options that vLLM has too mean what they mean there;
``mixed`` requests (the default) are of several kinds and samplings.
"""

import argparse
import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tqdm import tqdm

from cluster.option_types import natural, new_file, positive, positive_int, share
from lab.bench.harness.record import write_record
from lab.bench.load import report as load_report
from lab.bench.load.client import drive, endpoint_of, open_client, served_model
from lab.bench.load.datasets import random_prompts, sharegpt_prompts
from lab.bench.load.plan import COMPLETIONS, PlannedRequest, mixed_requests, plan_load
from lab.bench.load.report import Answer, Summary, as_json, as_text, kept_shares, summarise, times_s
from lab.options import existing_file
from outrider.models.tokenizer import load_tokenizer

_DURATION_S = 60.0


def main(argv: Sequence[str]) -> None:
    parser = _parser()
    args = parser.parse_args(argv)
    args.rate = args.rate or [1.0 if args.dataset_name == "mixed" else math.inf]
    if math.inf in args.rate and not args.requests:
        parser.error("needs --num-prompts where all requests leave at once")
    if (args.dataset_name == "sharegpt") != (args.dataset_path is not None):
        parser.error("needs --dataset-path with --dataset-name sharegpt, and only there")
    asyncio.run(_run(args))


def _rate(text: str) -> float:
    return math.inf if text == "inf" else positive(text)


def _share(text: str) -> float:
    if (value := share(text)) == 1.0:
        raise argparse.ArgumentTypeError(f"needs a number below 1, found {text!r}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider bench load", description=__doc__)
    add = parser.add_argument
    add("--url", "--base-url", default="http://127.0.0.1:8000", help="of the service")
    add("--model", default=None, help="default: the first one served")
    told = "requests per second, one run for each; inf: all at once (default: 1, or inf for vLLM's datasets)"
    add("--rate", "--request-rate", type=_rate, nargs="+", default=None, help=told)
    length = parser.add_mutually_exclusive_group()
    told = f"of each run, at --rate (default: {_DURATION_S:g})"
    length.add_argument("--duration-s", type=positive, default=_DURATION_S, help=told)
    length.add_argument("--requests", "--num-prompts", type=positive_int, default=None, help="of each run")
    add("--burstiness", type=positive, default=1.0, help="of gamma distributed gaps; 1: Poisson, below: more bursty")
    add("--max-concurrency", type=positive_int, default=None, help="requests at a time; the others wait here")
    add("--seed", type=natural, default=0, help="of arrivals and requests; the next rate's is one more")
    add("--max-tokens", type=positive_int, default=128, help="the longest mixed output; the median is a third of it")
    _add_datasets(parser)
    add("--window", type=natural, default=None, help="draft tokens per round (default: the service's choice)")
    add("--classes", nargs="+", default=[], metavar="CLASS", help="SLO classes that requests ask for, all alike often")
    add("--timeout-s", type=positive, default=300.0, help="from sending a request to the end of its answer")
    add("--json", type=new_file, default=None, metavar="FILE", help="write settings, figures and every request")
    return parser


def _add_datasets(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("datasets").add_argument
    add("--dataset-name", choices=("mixed", "random", "sharegpt"), default="mixed")
    add("--dataset-path", type=existing_file, default=None, metavar="FILE", help="JSON of ShareGPT")
    add("--tokenizer", default="embedded", help="of the served model, for random and sharegpt (default: embedded)")
    add("--random-input-len", type=positive_int, default=1024, help="tokens")
    add("--random-output-len", type=positive_int, default=128, help="tokens; they are always generated")
    add("--random-range-ratio", type=_share, default=0.0, help="lengths lie within this share of both")
    add("--sharegpt-output-len", type=positive_int, default=None, help="tokens (default: the dataset's answer's)")
    add("--ignore-eos", action="store_true", help="sharegpt: generate all tokens of an answer's length")


def _asked(args: argparse.Namespace, count: int, seed: int) -> list[tuple[str, Mapping[str, object]]]:
    if args.dataset_name == "mixed":
        return [*mixed_requests(count, seed, args.max_tokens)]
    tokenizer = load_tokenizer(args.tokenizer)
    if args.dataset_name == "random":
        lengths = args.random_input_len, args.random_output_len
        bodies = random_prompts(tokenizer, count, lengths, args.random_range_ratio, seed)
    else:
        bodies = sharegpt_prompts(tokenizer, count, args.dataset_path, args.sharegpt_output_len, seed)
    return [(COMPLETIONS, {**body, "ignore_eos": True} if args.ignore_eos else body) for body in bodies]


async def _run(args: argparse.Namespace) -> None:
    runs: list[dict[str, object]] = []
    summaries: list[Summary] = []
    async with open_client(args.url, args.timeout_s) as client:
        model = args.model or await served_model(client)
        endpoint = await endpoint_of(client, model, args.timeout_s)
        print(f"{model} at {args.url}, {args.dataset_name} requests, seed {args.seed}", flush=True)
        for index, rate_per_s in enumerate(args.rate):
            seed = args.seed + index  # another load at each rate, or the second would find the first one's KV
            asked = _asked(args, args.requests or max(1, round(args.duration_s * rate_per_s)), seed)
            plan = plan_load(
                asked, rate_per_s, seed=seed, burstiness=args.burstiness, window=args.window, classes=args.classes
            )
            with tqdm(total=len(plan), desc=f"{rate_per_s:g}/s", disable=None, leave=False) as bar:
                answers = await drive(endpoint, plan, bar.update, args.max_concurrency)
            summary = summarise(rate_per_s, answers)
            print(as_text(summary, args.max_concurrency), flush=True)
            summaries.append(summary)
            runs.append(_run_json(summary, plan, answers))
            if args.json is not None:  # after each rate, so that an interrupt loses one
                settings = {**vars(args), "model": model, "rate": [as_json(one)["request_rate"] for one in summaries]}
                write_record(args.json, settings, {"definitions": load_report.__doc__, "runs": runs})
    if args.classes:
        for summary, share in zip(summaries, kept_shares(summaries), strict=True):
            told = "the lowest rate" if share is None else f"{share:.2f} of the best at any lower rate"
            print(f"{summary.request_rate:g}/s: kept {summary.kept_per_s:.3f} responses/s, {told}")


def _run_json(summary: Summary, plan: Sequence[PlannedRequest], answers: Sequence[Answer]) -> dict[str, object]:
    requests = [
        {
            **asdict(answer),
            "max_tokens": request.body["max_tokens"],
            "ttft_s": next(iter(times_s(answer)["ttft"]), None),
        }
        for request, answer in zip(plan, answers, strict=True)
    ]
    return {"summary": as_json(summary), "requests": requests}
