"""A measured cell as a workload that the simulator can replay (``outrider.simulation.recorded``)."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from bench.capacity.emulated_devices import generation_name
from bench.capacity.log import CellLog, ResponseEntry, RoundEntry
from bench.capacity.run import RunSettings
from outrider.contracts.requests import GenerationId
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.simulation.recorded import (
    RecordedBatch,
    RecordedDevice,
    RecordedResponse,
    RecordedRound,
    WorkloadRecord,
)

_Expected = Mapping[GenerationId, list[float]]


def workload(log: CellLog, settings: RunSettings) -> WorkloadRecord:
    """What the cell's devices did and its batches took, warm-up included."""
    expected, beyond_s = _expected_tokens(log), _exchange_beyond_link_s(log, settings)
    devices = []
    for user, spec in enumerate(settings.devices[: log.cell.users]):
        mine = [response for response in log.responses if response.user == user and response.rounds]
        devices.append(
            RecordedDevice(
                responses=tuple(_responses(mine, log, expected)),
                slo=mine[0].slo,
                link=settings.profile,
                link_seed=spec.seed,
                exchange_s=beyond_s,
            )
        )
    batches = tuple(RecordedBatch(batch.costs, batch.engine_s) for batch in log.batches)
    return WorkloadRecord(log.cell.name, tuple(devices), batches)


def _responses(mine: list[ResponseEntry], log: CellLog, expected: _Expected) -> list[RecordedResponse]:
    found, idle_since_s = [], 0.0
    for response in mine:
        yields = expected[generation_name(log.cell.name, response.user, response.number)]
        found.append(
            RecordedResponse(
                pause_s=response.asked_at_s - idle_since_s,
                prompt_tokens=response.prompt_tokens,
                rounds=tuple(
                    _round(before, after, yields[number])
                    for number, (before, after) in enumerate(pairwise(response.rounds), start=1)
                ),
                first_token_s=response.rounds[0].committed_at_s - response.asked_at_s,
            )
        )
        idle_since_s = response.rounds[-1].committed_at_s
    return found


def _round(before: RoundEntry, made: RoundEntry, expected_tokens: float) -> RecordedRound:
    timing = made.timing
    return RecordedRound(
        drafted_tokens=timing.drafted_tokens,
        accepted_tokens=timing.accepted_tokens,
        draft_s=timing.draft_s,
        down_bits=timing.down_bits,
        up_bits=timing.up_bits,
        round_s=made.committed_at_s - before.committed_at_s,
        queue_s=timing.queue_s,
        verify_s=timing.verify_s,
        expected_tokens=expected_tokens,
    )


def _expected_tokens(log: CellLog) -> _Expected:
    """Of every response's rounds in turn, as policies were given them."""
    given: dict[GenerationId, dict[int, float]] = defaultdict(dict)
    for decision in log.decisions:
        for pending in decision.pending:
            given[pending.generation][pending.round] = pending.expected_tokens
    return {generation: [rounds[number] for number in sorted(rounds)] for generation, rounds in given.items()}


def _exchange_beyond_link_s(log: CellLog, settings: RunSettings) -> float:
    """What an exchange takes beyond its link's mean: timers and the event loop."""
    csi = profile_csi(settings.profile)
    beyond_s = [
        entry.timing.link_s - exchange_s(csi, entry.timing.down_bits, entry.timing.up_bits)
        for response in log.responses
        for entry in response.rounds
        if entry.timing.up_bits
    ]
    return max(0.0, sum(beyond_s) / len(beyond_s)) if beyond_s else 0.0
