"""``outrider bench exactness``: whether an engine returns in batches what it returns alone, token for token.

Requests have 10 to 200 prompt tokens and 16 to 40 output tokens; half are greedy and half sampled by a seed, a third of
each with penalties and biases, half with log-probabilities. The torch engine answers each alone without drafts: the
reference. Then all are answered again in batches: passes over 1 to 32 generations that join and end; drafts of 0 to 16
right, nearly right, misleading, random and looked-up tokens, in chains and trees; prompts in chunks of 5 to 512; memory
for all or for a few; engines and generations that are lost, some with undelivered outcomes, and resume from what was
committed. Tokens, and in bfloat16 also log-probabilities, must be bit for bit the same; if not, the command fails.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import torch
from tqdm import tqdm

from cluster.option_types import natural, new_file, positive_int
from cluster.reports.tables import show_table
from lab.bench.exactness.company import MOST_GENERATIONS, Counts, faults, total, tried
from lab.bench.exactness.reference import Target
from lab.bench.exactness.requests import Request, draw_requests
from lab.bench.harness.prompts import PROMPTS
from lab.bench.harness.record import write_record
from outrider.engines.torch.kind import cpu_dtype
from outrider.engines.torch.served import keeps_bits, target_model
from outrider.models.folders import EMBEDDED
from outrider.models.loading import load_target
from outrider.models.tokenizer import load_tokenizer
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.traces import prompt_ids

_PART_REQUESTS = 100
_BLOCK_TOKENS = 16
_POSITIONS = 320  # of a generation, upper limit, drafts included
_TEXTS = 400


def main(argv: Sequence[str]) -> None:
    """Run the campaign; exit with 1 on a difference."""
    args = _arguments(argv)
    tokenizer = load_tokenizer(args.target)
    texts = [prompt_ids(tokenizer, text) for text in (*PROMPTS, *builtin_prompts()[:_TEXTS])]
    requests = draw_requests(texts, args.requests, args.seed, len(tokenizer))
    began_at_s = time.monotonic()
    with tqdm(total=len(requests), desc="requests", disable=None) as bar:
        parts = []
        for counts, promised in _run(args, requests):
            parts.append((counts, promised))
            bar.update(counts.requests)
    counts, bits_promised = total([counts for counts, _ in parts]), all(promised for _, promised in parts)
    elapsed_s = time.monotonic() - began_at_s
    _show(args, counts, elapsed_s)
    told = faults(counts, bits_promised=bits_promised)
    if args.json is not None:
        write_record(args.json, args, {"counts": asdict(counts), "elapsed_s": elapsed_s, "faults": told})
    if not bits_promised:
        print("log-probabilities are not promised to be the same bits in this type on this processor")
    if told:
        sys.exit("NOT EXACT: " + "; ".join(told))
    print("exact: every token is the one returned alone")


def _run(args: argparse.Namespace, requests: Sequence[Request]) -> Iterator[tuple[Counts, bool]]:
    """Yield each part's counts, and whether log-probabilities are promised to be the same bits."""
    torch.set_num_threads(1)
    loaded = load_target(args.target, dtype=args.dtype, device="cpu")
    promised = keeps_bits(loaded.model)
    blocks = MOST_GENERATIONS * -(-_POSITIONS // _BLOCK_TOKENS)
    model = target_model(loaded.model, blocks, _BLOCK_TOKENS, parts=2)
    target = Target(model, loaded.vocab_size, loaded.max_context_tokens)
    for first in range(0, len(requests), _PART_REQUESTS):
        yield tried(target, requests[first : first + _PART_REQUESTS], args.seed + first), promised


def _show(args: argparse.Namespace, counts: Counts, elapsed_s: float) -> None:
    rows = [(name.replace("_", " "), value) for name, value in asdict(counts).items() if name != "found"]
    rows.append(("blocks of a pass, mean", f"{counts.blocks / max(1, counts.passes):.1f}"))
    title = f"{args.target} {args.dtype}, torch engine, {elapsed_s:.0f} s"
    show_table(title, ("counted", ""), rows)
    for one in counts.found:
        print(f"  DIFFERS {one.request}: output token {one.position} is {one.found}, alone {one.expected}")


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider bench exactness", description=__doc__)
    add = parser.add_argument
    add("--target", default=EMBEDDED, help="the embedded one, or a folder in Hugging Face format")
    add("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    add("--requests", type=positive_int, default=1000, help="how many (default: %(default)s)")
    add("--seed", type=natural, default=0, help="of all that is random (default: %(default)s)")
    add("--json", type=new_file, default=None, metavar="FILE", help="write every figure")
    args = parser.parse_args(argv)
    if args.dtype == "auto":
        args.dtype = cpu_dtype()
    return args
