"""What one device was given after the warm-up, and how late."""

from dataclasses import dataclass, field

from outrider.contracts.slo import SloClass
from outrider.scheduling.attribution import ViolationCause, round_is_late
from outrider.simulation.drafted_rounds import Draft
from outrider.simulation.results import DeviceResults


@dataclass(slots=True, eq=False)
class DeviceAccount:
    """Mutable; becomes a ``DeviceResults``.

    Attributes:
        paced_tokens: committed behind first tokens by responses that ended, in ``paced_s``.
        since_s: from where the pace of the response under way is counted.
        open_tokens: of that one since then; the last of them came after ``open_s``.
    """

    rounds: int = 0
    late_queue_rounds: int = 0
    late_compute_rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    committed_tokens: int = 0
    responses: int = 0
    late_responses: int = 0
    paced_tokens: int = 0
    paced_s: float = 0.0
    since_s: float = 0.0
    open_tokens: int = 0
    open_s: float = 0.0
    speeds: list[float] = field(default_factory=list)

    def first_tokens(self, now_s: float, *, measured: bool) -> None:
        """A response's first token came: its pace counts from here."""
        self.since_s, self.open_tokens, self.open_s = now_s, 0, 0.0
        self.committed_tokens += measured

    def round_committed(self, tokens: int, now_s: float, *, measured: bool) -> None:
        """Tokens behind the first came."""
        if measured:
            self.committed_tokens += tokens
            self.open_tokens += tokens
            self.open_s = now_s - self.since_s
        else:
            self.since_s = now_s

    def judge_round(self, tokens_per_s: float, draft: Draft, round_s: float, cause: ViolationCause) -> bool:
        """Count a measured round; whether it was late."""
        self.rounds += 1
        self.drafted_tokens += draft.nodes
        self.accepted_tokens += draft.accepted
        late = round_is_late(tokens_per_s, draft.accepted + 1, round_s)
        if late:
            self._count_late(cause)
        return late

    def end_response(self, tokens_per_s: float, *, measured: bool) -> None:
        """The response under way is over."""
        if measured:
            self._count_response(tokens_per_s)
            if self.open_s > 0.0:
                self.speeds.append(self.open_tokens / self.open_s)
        self.open_tokens, self.open_s = 0, 0.0

    def _count_response(self, tokens_per_s: float) -> None:
        self.responses += 1
        self.late_responses += self.open_tokens < tokens_per_s * self.open_s
        self.paced_tokens += self.open_tokens
        self.paced_s += self.open_s

    def _count_late(self, cause: ViolationCause) -> None:
        if cause is ViolationCause.QUEUE:
            self.late_queue_rounds += 1
        else:
            self.late_compute_rounds += 1

    def close(self, tokens_per_s: float, began_at_s: float, owed_from_s: float | None, most: int, end_s: float) -> bool:
        """The run is over with a response under way; whether that one is hopelessly behind.

        It is if even a whole block committed now would leave it behind. If so the time until now is charged to it, and
        its open round counts if that alone is late already.

        Args:
            tokens_per_s: promised.
            began_at_s: its open round did.
            owed_from_s: tokens are; None if its first one came, and its pace counts from there.
            most: tokens the open round can commit of those owed.
            end_s: now.
        """
        since_s = self.since_s if owed_from_s is None else owed_from_s
        starved = self.open_tokens + most < tokens_per_s * (end_s - since_s)
        if starved:
            self.open_s = end_s - since_s
            if round_is_late(tokens_per_s, most, end_s - max(began_at_s, since_s)):
                self.rounds += 1
                self._count_late(ViolationCause.QUEUE)
        self._count_response(tokens_per_s)
        return starved

    def results(self, device: int, group: str, slo: SloClass, *, unfinished: bool, starved: bool) -> DeviceResults:
        """What is told of it in the end."""
        return DeviceResults(
            device=device,
            group=group,
            slo=slo,
            responses=self.responses,
            late_responses=self.late_responses,
            unfinished=unfinished,
            starved=starved,
            rounds=self.rounds,
            late_queue_rounds=self.late_queue_rounds,
            late_compute_rounds=self.late_compute_rounds,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            committed_tokens=self.committed_tokens,
            paced_tokens=self.paced_tokens,
            paced_s=self.paced_s,
            speeds_tokens_per_s=tuple(self.speeds),
        )
