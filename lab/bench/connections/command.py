"""``outrider bench connections``: very many connections at once to a service on this machine.

Of twenty clients 14 stream a completion, 4 read theirs at 2 KB/s, one never completes its request, one sends nothing.
The first two kinds should be served to the end or refused with 429, the others should lose their connection. Memory is
that of all Outrider processes of this machine.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from lab.bench.connections.clients import Answer, answers, counted, unfair
from lab.bench.connections.memory import Memory, sampled
from lab.bench.harness.options import positive, positive_int
from lab.bench.harness.record import write_record
from lab.bench.load.client import open_client, served_model


def main(argv: Sequence[str]) -> None:
    """Run the bench and print its figures."""
    parser = argparse.ArgumentParser(prog="outrider bench connections", description=__doc__)
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="of the service")
    add("--connections", type=positive_int, default=1000)
    add("--tokens", type=positive_int, default=32, help="of each response")
    add("--timeout-s", type=positive, default=400.0, help="for each client")
    add("--json", type=Path, default=None, metavar="FILE", help="write settings and figures")
    args = parser.parse_args(argv)
    where = urlsplit(args.url)
    body = {
        "model": asyncio.run(_model(args.url)),
        "prompt": "Once upon a time there was",
        "max_tokens": args.tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
    }
    with sampled() as memory:
        found = asyncio.run(answers(where.hostname or "", where.port or 80, body, args.connections, args.timeout_s))
    print("\n".join(lines(found, memory)), flush=True)
    if args.json is not None:
        content = {
            "outcomes": counted(found),
            "memory_mib": asdict(memory),
            "clients": [asdict(each) for each in found],
        }
        write_record(args.json, args, content)


async def _model(url: str) -> str:
    async with open_client(url, 30.0) as client:
        return await served_model(client)


def lines(found: Sequence[Answer], memory: Memory) -> list[str]:
    told = [
        f"{kind}: {', '.join(f'{n} {outcome}' for outcome, n in of.items())}" for kind, of in counted(found).items()
    ]
    first = sorted(each.first_byte_s for each in found if each.first_byte_s is not None)
    if first:
        told.append(f"first byte: p50 {first[len(first) // 2]:.2f} s, last {first[-1]:.2f} s")
    told.append(f"all over after {max(each.ended_s for each in found):.1f} s")
    for name, before in memory.before.items():
        after = memory.after.get(name)
        kept = "gone" if after is None else f"{after:.0f} MiB after"
        told.append(f"{name}: {before:.0f} MiB before, {memory.most.get(name, before):.0f} MiB at most, {kept}")
    told += [f"UNFAIR {each}" for each in unfair(found)[:5]]
    return told
