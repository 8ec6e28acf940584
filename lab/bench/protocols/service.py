"""Queries a running service, one request at a time, and reads the timings of each round."""

from lab.bench.harness.running import RunningService
from lab.bench.load.client import ServiceUnusableError
from lab.bench.protocols.plan import Cell, Turn
from lab.bench.protocols.rounds import Response, at_work, parse_choices


async def ask(
    service: RunningService, cell: Cell, turn: Turn, prompt: str, tokens: int, options: dict[str, object]
) -> Response:
    """Request one response of exactly ``tokens`` tokens; ``ServiceUnusableError`` if it is refused or incomplete."""
    said = await service.ask(
        prompt, {**options, "explain": True}, max_tokens=tokens, temperature=cell.temperature, ignore_eos=True
    )
    if said.tokens != tokens:
        raise ServiceUnusableError(f"needs {tokens} tokens by {options}, found {said.tokens}; see its log")
    usage, timings = said.usage, said.timings
    rounds, choices = at_work(turn.method, timings, parse_choices(usage.get("choices", ())))
    return Response(
        cell=cell,
        method=turn.method,
        repeat=turn.repeat,
        prompt=turn.prompt,
        elapsed_s=said.elapsed_s,
        rounds=rounds,
        row_requests=max(int(usage["rounds"]) - len(timings), 0),
        timed=(sum(t.total_s for t in timings), sum(t.up_bits for t in timings), sum(t.down_bits for t in timings)),
        sent=(int(usage["payload_bits"]["up"]), int(usage["payload_bits"]["down"])),
        choices=choices,
    )
