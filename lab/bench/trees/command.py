"""``outrider bench trees``: tokens per round of chains, fixed shapes and dynamic trees.

The target writes responses to prompts that the embedded drafter was not distilled on; a round commits the draft tokens
that they continue with, and one token more. For each number of rows the best chain and the best fixed shape of at most
that many nodes are compared with dynamic trees of that size, by the drafter passes they may take. Then the same mean
number of rows: trees of the nodes that are worth more than a price, few in one round and many in another.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from cluster.reports.tables import show_table
from lab.bench.harness.options import positive_int
from lab.bench.harness.record import write_record
from lab.bench.trees.rounds import Counted, WeightedSiblings, played, ranks, shaped, shapes_of
from lab.bench.trees.texts import Text, write_texts
from lab.training.head.paged_texts import PagedTexts
from lab.training.head.pair import LoadedPair, PairSpec, load_pair
from outrider.contracts.drafting import DraftPlan
from outrider.contracts.price import DraftPrice
from outrider.contracts.requests import SamplingParams
from outrider.engines.drafter.engine import TorchDrafter
from outrider.engines.limits import EngineLimits
from outrider.engines.torch.model import kv_bytes_per_token
from outrider.engines.torch.served import target_model
from outrider.models.folders import EMBEDDED
from outrider.protocols.registry import register, unregister
from outrider.training.builtin_prompts import builtin_prompts
from outrider.training.traces import is_held_out, prompt_ids

_BLOCK_TOKENS = 16
_PRICED_ROWS = 64  # limit of a tree that a price bounds
_DEEPEST = 12  # layers of a fixed shape
_RANKS = 4  # whose shares are reported
_ROUNDING = 0.1  # of a row
_NODE_SLOTS = 768  # of KV, for the nodes of a text's trees
_HEADER = ("draft", "rows", "layers", "tokens per round", "over the best chain")


def main(argv: Sequence[str]) -> None:
    args = _arguments(argv)
    torch.set_num_threads(args.threads)
    models = load_pair(PairSpec(args.target, args.drafter))
    texts = _written(models, args)
    bench = _Bench(models, texts)
    chains = [bench.shaped((1,) * window) for window in range(1, max(args.rows) + 1)]
    lines = [line for rows in args.rows for line in _of_rows(bench, rows, chains, args)]
    tokens = sum(len(text.token_ids) for text in texts)
    pair = f"{args.target} and {args.drafter}, temperature {args.temperature:g}"
    note = "tokens that the drafter ranks first, second, ...: " + ", ".join(f"{share:.3f}" for share in bench.shares)
    show_table(f"{pair}: {len(texts)} responses, {tokens} tokens", _HEADER, lines, note)
    if args.prices:
        priced = [_priced(bench, price, chains, args) for price in args.prices]
        show_table("nodes worth more than a price", _HEADER, priced, "against the best chain of no more rows")
    if args.json is not None:
        write_record(args.json, args, {"chains": chains, "grown": bench.found, "tokens": tokens})


class _Bench:
    """A drafter, and the texts it drafts for."""

    def __init__(self, models: LoadedPair, texts: Sequence[Text]) -> None:
        slots = max(len(text.prompt_ids) + len(text.token_ids) for text in texts) + _NODE_SLOTS
        budget = len(texts) * slots * kv_bytes_per_token(models.drafter.model)
        self._engine = TorchDrafter(models.drafter, EngineLimits(budget, _BLOCK_TOKENS))
        self._texts, self._vocab_size = texts, models.target.vocab_size
        self.found: list[dict[str, object]] = []  # of every dynamic tree
        with tqdm(desc="ranks", unit="token", disable=None, leave=False) as bar:
            self._ranks = ranks(self._engine, texts, self._vocab_size, bar.update)

    @property
    def shares(self) -> list[float]:
        """Share of all tokens by rank, of the first ranks."""
        every = [rank for own in self._ranks for rank in own]
        return [every.count(rank) / len(every) for rank in range(_RANKS)]

    def shaped(self, shape: tuple[int, ...]) -> float:
        """Tokens per round of a fixed shape."""
        return shaped(self._ranks, shape)

    def grown(self, rows: int, passes: int, *, protocol: str = "token_ids", price: float = 0.0) -> Counted:
        """Rounds of dynamic trees of at most ``rows`` nodes."""
        plan = DraftPlan(protocol, min(passes, rows), rows=rows)
        with tqdm(desc=f"{rows} rows, {passes} passes", unit="round", disable=None, leave=False) as bar:
            one = played(self._engine, self._texts, plan, self._vocab_size, DraftPrice(price), bar.update)
        self.found.append({"plan": asdict(plan), "price": price, **asdict(one)})
        return one


def _of_rows(bench: _Bench, rows: int, chains: Sequence[float], args: argparse.Namespace) -> list[tuple[str, ...]]:
    best, longest = max(chains[:rows]), 1 + chains.index(max(chains[:rows]))
    tokens, shape = max((bench.shaped(shape), shape) for shape in shapes_of(rows, _DEEPEST))
    nodes = DraftPlan("token_ids", len(shape), shape).nodes
    lines = [
        _line(f"chain of {longest}", longest, longest, best, best),
        _line(f"<{','.join(map(str, shape))}>", nodes, len(shape), tokens, best),
    ]
    depths = sorted({min(passes, rows) for passes in args.passes})
    lines += [_counted(f"grown, {passes} passes", bench.grown(rows, passes), best) for passes in depths]
    for weight in args.weights:
        register(WeightedSiblings(weight))
        one = bench.grown(rows, max(args.passes), protocol=WeightedSiblings.name)
        unregister(WeightedSiblings.name)
        lines.append(_counted(f"grown, siblings x {weight:g}", one, best))
    return lines


def _priced(bench: _Bench, price: float, chains: Sequence[float], args: argparse.Namespace) -> tuple[str, ...]:
    one = bench.grown(_PRICED_ROWS, max(args.passes), price=price)
    return _counted(f"above {price:g}", one, max(chains[: max(1, int(one.rows_per_round + _ROUNDING))]))


def _counted(name: str, one: Counted, chain: float) -> tuple[str, ...]:
    return _line(name, one.rows_per_round, one.layers / one.rounds, one.tokens_per_round, chain)


def _line(name: str, rows: float, layers: float, tokens: float, chain: float) -> tuple[str, ...]:
    return name, f"{rows:.3g}", f"{layers:.3g}", f"{tokens:.3f}", f"{tokens / chain:.3f}"


def _written(models: LoadedPair, args: argparse.Namespace) -> list[Text]:
    every = dict.fromkeys(tuple(prompt_ids(models.target.tokenizer, text)) for text in builtin_prompts())
    prompts = [ids for ids in every if is_held_out(ids)][: args.prompts]
    asked = [
        (ids, SamplingParams(temperature=args.temperature, seed=args.seed + number))
        for number, ids in enumerate(prompts)
    ]
    blocks = len(asked) * -(-(max(map(len, prompts)) + args.tokens) // _BLOCK_TOKENS)
    target = PagedTexts(
        target_model(models.target.model, blocks, _BLOCK_TOKENS, args.threads), models.target.vocab_size
    )
    with tqdm(desc="responses", unit="token", disable=None, leave=False) as bar:
        return write_texts(target, asked, args.tokens, models.target.eos_token_ids, bar.update)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outrider bench trees", description=__doc__)
    add = parser.add_argument
    add("--target", default=EMBEDDED, help="name or path (default: %(default)s)")
    add("--drafter", default=EMBEDDED, help="name, path or a distilled file (default: %(default)s)")
    add("--prompts", type=positive_int, default=48, help="built-in ones (default: %(default)s)")
    add("--tokens", type=positive_int, default=96, help="of a response at most (default: %(default)s)")
    add("--temperature", type=float, default=0.0, help="above 0: by shared noise (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the first response (default: %(default)s)")
    add("--rows", type=positive_int, nargs="+", default=[4, 8, 16], help="nodes (default: 4 8 16)")
    add("--passes", type=positive_int, nargs="+", default=[4, 6, 8], help="of the device (default: 4 6 8)")
    add("--weights", type=float, nargs="*", default=[], help="siblings are taken for so much less likely")
    add("--prices", type=float, nargs="*", default=[0.085, 0.04, 0.016], help="(default: 0.085 0.04 0.016)")
    add("--threads", type=positive_int, default=1, help="of torch (default: %(default)s)")
    add("--json", type=Path, default=None, metavar="FILE", help="write every figure")
    return parser.parse_args(argv)
