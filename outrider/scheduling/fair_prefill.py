"""Share prefill between accounts: the chunk of a pass goes to the account with the fewest prompt tokens computed. Pure.

Policies know no accounts; they order blocks by arrival and deadline. So within an SLO class the cold blocks whose turn
it is are shown to the policy with the class's earliest deadline and an earlier arrival than the others. The policy
still decides how much each class gets and when; this module decides who of the class gets it. With one account nothing
is changed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, nextafter
from operator import attrgetter

from outrider.contracts.accounts import NO_ACCOUNT, Account
from outrider.contracts.requests import GenerationId
from outrider.scheduling.fair_order import AccountService, Level, fair_order
from outrider.scheduling.policy import PendingVerification

_arrived = attrgetter("arrived_at_s")
_by_deadline = attrgetter("deadline_at_s", "arrived_at_s", "generation")


class FairPrefill:
    """Prefill shares of one verifier. Service is the decrease of each cold block's prefix from plan to plan."""

    def __init__(self) -> None:
        self._accounts: dict[GenerationId, Account] = {}
        self._asking = Counter[Account]()
        self._cold: dict[GenerationId, tuple[Account, int]] = {}  # prefix tokens that were left in the last plan
        self._service = AccountService()

    @property
    def competing(self) -> bool:
        return self._service.several

    @property
    def remembered(self) -> int:
        return len(self._asking) + self._service.remembered

    def add(self, generation: GenerationId, account: Account) -> None:
        self._accounts[generation] = account
        self._asking[account] += 1

    def withdraw(self, generation: GenerationId) -> None:
        account = self._accounts.pop(generation, None)
        if account is not None:
            self._asking[account] -= 1
            if not self._asking[account]:
                del self._asking[account]

    def in_turn(
        self, pending: Sequence[PendingVerification], done: Iterable[PendingVerification], chunk_tokens: int
    ) -> Sequence[PendingVerification]:
        """Return ``pending`` with arrivals and deadlines changed where accounts compete for a pass's ``chunk_tokens``.

        Blocks in ``done`` should be finished by the step under way: they are charged, not ordered.
        """
        if len(self._asking) < 2:
            if self._cold:
                self._cold, self._service = {}, AccountService()
            return pending
        cold = {block.generation: block for block in pending if block.prefill_tokens}
        self._count(cold | {block.generation: block for block in done if block.prefill_tokens})
        if not self._service.several:
            return pending
        classes = defaultdict[float, list[PendingVerification]](list)
        for block in cold.values():
            classes[block.tokens_per_s].append(block)
        shown = dict[GenerationId, PendingVerification]()
        for of_class in classes.values():
            if len(of_class) == 1:
                continue
            of_class.sort(key=_by_deadline)
            deadline_at_s, arrived_at_s = of_class[0].deadline_at_s, min(map(_arrived, of_class))
            for block in reversed(self._first(of_class, chunk_tokens)):
                # The next smaller float: orders the turn among equal deadlines.
                arrived_at_s = nextafter(arrived_at_s, -inf)
                shown[block.generation] = replace(block, arrived_at_s=arrived_at_s, deadline_at_s=deadline_at_s)
        return [shown.get(block.generation, block) for block in pending]

    def prefill_order(
        self, done: Iterable[GenerationId], batch: Sequence[PendingVerification]
    ) -> tuple[GenerationId, ...]:
        """Return the order in which a planned batch shares its chunk; () where only one account has cold blocks.

        Generations in ``done`` come first: a block that should end with the step under way may need the next one too.
        """
        if not self._service.several:
            return ()
        return (*done, *(block.generation for block in batch if block.prefill_tokens))

    def _first(self, blocks: list[PendingVerification], chunk_tokens: int) -> list[PendingVerification]:
        """Return the blocks whose turn it is, until they fill one pass's chunk."""

        def account_level(account: Account) -> Level:
            return self._service.of_account(account), 0.0

        def user_level(account: Account) -> Level:
            return self._service.of_user(account), 0.0

        def amount(block: PendingVerification) -> float:
            return float(min(block.prefill_tokens, chunk_tokens))

        first, left = list[PendingVerification](), chunk_tokens
        for block in fair_order(blocks, self._account, account_level, user_level, amount):
            first.append(block)
            left -= block.prefill_tokens
            if left <= 0:
                break
        return first

    def _account(self, block: PendingVerification) -> Account:
        return self._accounts.get(block.generation, NO_ACCOUNT)

    def _count(self, cold: Mapping[GenerationId, PendingVerification]) -> None:
        """Charge what was computed since the last plan. A block that is no longer cold was computed to its end."""
        joined = {name: (self._account(block), block.prefill_tokens) for name, block in cold.items()}
        for name, (account, _) in joined.items():
            if name not in self._cold:
                self._service.join(account)
        for name, (account, had) in self._cold.items():
            _, left = joined.get(name, (account, 0))
            if left < had:
                self._service.charge(account, had - left)
        # Joins come before removals: an account with another cold block stays active and keeps its counter.
        for name, (account, _) in self._cold.items():
            if name not in joined:
                self._service.remove(account)
        self._cold = joined
