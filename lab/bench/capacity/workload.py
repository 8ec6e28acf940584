"""A measured cell as a workload that the simulator can replay (``lab.simulation.recorded``)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import inf

from lab.bench.capacity.emulated_devices import generation_name
from lab.bench.capacity.figures import round_times_s
from lab.bench.capacity.log import CellLog, ResponseEntry
from lab.bench.capacity.run import RunSettings
from lab.simulation.drafted_rounds import SimDraft, SimResponse
from lab.simulation.recorded import RecordedDevice, WorkloadRecord
from outrider.contracts.requests import GenerationId
from outrider.link.latency import exchange_s
from outrider.link.state import profile_csi
from outrider.rounds.timing import RoundTiming

_Expected = Mapping[GenerationId, list[float]]


def workload(log: CellLog, settings: RunSettings) -> WorkloadRecord:
    """The devices' activity and the batches' times, warm-up included.

    Admissions are taken from the record: a refused response has no rounds to replay, and waiting for admission is a
    pause. In an open loop each response is a device's only one, and begins when it did.
    """
    expected, beyond_s = _expected_tokens(log), _exchange_beyond_link_s(log, settings)
    devices = []
    made = defaultdict[int, list[ResponseEntry]](list)
    for response in log.responses:
        if response.rounds:
            made[response.user].append(response)
    specs = settings.devices(log.cell.users)
    for user, mine in sorted(made.items()):
        responses = tuple(_responses(mine, log, expected))
        devices.append(RecordedDevice(responses, mine[0].slo, settings.profile, specs[user].seed, beyond_s))
    batches = tuple((batch.costs, batch.engine_s) for batch in log.batches)
    return WorkloadRecord(log.cell.name, tuple(devices), tuple(round_times_s(log, from_s=-inf)), batches)


def _responses(
    mine: list[ResponseEntry], log: CellLog, expected: _Expected
) -> Iterator[tuple[SimResponse, tuple[SimDraft, ...]]]:
    idle_since_s = 0.0
    for response in mine:
        yields = expected[generation_name(log.cell.name, response.user, response.number)]
        rounds = tuple(_round(made.timing, yields[number]) for number, made in enumerate(response.rounds) if number > 0)
        output_tokens = 1 + sum(draft.accepted + 1 for draft in rounds)
        yield SimResponse(response.begun_at_s - idle_since_s, response.prompt_tokens, output_tokens), rounds
        idle_since_s = response.rounds[-1].committed_at_s


def _round(timing: RoundTiming, expected_tokens: float) -> SimDraft:
    bits = (timing.down_bits, timing.up_bits) if timing.down_bits or timing.up_bits else None
    nodes = timing.drafted_tokens - timing.trimmed_tokens
    return SimDraft(nodes, nodes, timing.accepted_tokens, timing.draft_s, expected_tokens, bits)


def _expected_tokens(log: CellLog) -> _Expected:
    """Of every response's rounds in turn, as policies were given them; autonomous rounds yield one token."""
    given: dict[GenerationId, dict[int, float]] = defaultdict(dict)
    for batch in log.batches:
        for generation, number, _ in batch.members:
            given[generation][number] = 1.0
    for decision in log.decisions:
        for pending in decision.pending:
            given[pending.generation][pending.round] = pending.expected_tokens
    return {generation: [rounds[number] for number in sorted(rounds)] for generation, rounds in given.items()}


def _exchange_beyond_link_s(log: CellLog, settings: RunSettings) -> float:
    """Time of a drafted round beyond its link's mean, drafting, queue and verifier: timers and the event loop."""
    csi = profile_csi(settings.profile)
    beyond_s = [
        entry.timing.link_s
        + entry.timing.orchestration_s
        - exchange_s(csi, entry.timing.down_bits, entry.timing.up_bits)
        for response in log.responses
        for entry in response.rounds[1:]
        if entry.timing.up_bits
    ]
    return max(0.0, sum(beyond_s) / len(beyond_s)) if beyond_s else 0.0
