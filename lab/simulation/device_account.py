"""Count one device's tokens, rounds and responses after the warm-up, and which of them were late."""

from dataclasses import dataclass

from lab.simulation.results import DeviceResults
from outrider.contracts.slo import SloClass
from outrider.scheduling.attribution import ViolationCause, round_is_late


@dataclass(slots=True, eq=False)
class DeviceAccount:
    results: DeviceResults
    since_s: float = 0.0  # from when the speed of the response under way is measured
    open_tokens: int = 0  # its tokens since then; the last came ``open_s`` after ``since_s``
    open_s: float = 0.0

    @property
    def slo(self) -> SloClass:
        return self.results.slo

    @property
    def tokens_per_s(self) -> float:
        return self.results.slo.tokens_per_s

    def first_tokens(self, now_s: float, *, measured: bool) -> None:
        """Count a response's first token; its speed is measured from here."""
        self.since_s, self.open_tokens, self.open_s = now_s, 0, 0.0
        self.results.committed_tokens += measured

    def round_committed(self, tokens: int, now_s: float, *, measured: bool) -> None:
        """Count a round after the first token; before the warm-up's end it only moves ``since_s``."""
        if measured:
            self.results.committed_tokens += tokens
            self.open_tokens += tokens
            self.open_s = now_s - self.since_s
        else:
            self.since_s = now_s

    def judge_round(self, drafted: int, accepted: int, round_s: float, cause: ViolationCause) -> bool:
        self.results.rounds += 1
        self.results.drafted_tokens += drafted
        self.results.accepted_tokens += accepted
        late = round_is_late(self.tokens_per_s, accepted + 1, round_s)
        if late:
            self._count_late(cause)
        return late

    def end_response(self, *, measured: bool) -> None:
        if measured:
            self._count_response()
            if self.open_s > 0.0:
                self.results.speeds_tokens_per_s.append(self.open_tokens / self.open_s)
        self.open_tokens, self.open_s = 0, 0.0

    def close(self, began_at_s: float, due_from_s: float | None, most: int, end_s: float) -> None:
        """Count a response that is unfinished at the end of the run.

        It is starved if even a whole block committed now would leave it behind its promise. Then the time until now
        counts for it, and its open round counts as late if it alone is late already.

        Args:
            began_at_s: when its open round began.
            due_from_s: from when tokens are due; None if its first token came, and ``since_s`` counts.
            most: tokens due that the open round can commit at most.
            end_s: the end of the run.
        """
        since_s = self.since_s if due_from_s is None else due_from_s
        self.results.unfinished = True
        self.results.starved = self.open_tokens + most < self.tokens_per_s * (end_s - since_s)
        if self.results.starved:
            self.open_s = end_s - since_s
            if round_is_late(self.tokens_per_s, most, end_s - max(began_at_s, since_s)):
                self.results.rounds += 1
                self._count_late(ViolationCause.QUEUE)
        self._count_response()

    def _count_response(self) -> None:
        self.results.responses += 1
        self.results.late_responses += self.open_tokens < self.tokens_per_s * self.open_s
        self.results.timed_tokens += self.open_tokens
        self.results.timed_s += self.open_s

    def _count_late(self, cause: ViolationCause) -> None:
        if cause is ViolationCause.QUEUE:
            self.results.late_queue_rounds += 1
        else:
            self.results.late_compute_rounds += 1
