"""Prefill shared between accounts: the chunk of each pass goes to whoever had fewest prompt tokens computed. Pure.

Policies know no accounts: they order what waits by arrival and deadline. So of the cold blocks of one SLO class those
in turn are shown to them with the deadline of the most urgent, as if they had come before it: what the class gets and
when is the policy's to say, and who of the class gets it is said here. With one account nothing is changed.
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
    """Of one verifier. Counted is what is left of each cold block from one plan to the next."""

    def __init__(self) -> None:
        self._accounts: dict[GenerationId, Account] = {}
        self._asking = Counter[Account]()
        self._cold: dict[GenerationId, tuple[Account, int]] = {}  # prefix tokens that were left in the last plan
        self._service = AccountService()

    @property
    def competing(self) -> bool:
        """Whether several accounts had cold blocks in the last plan."""
        return self._service.several

    @property
    def remembered(self) -> int:
        """Accounts and users of which anything is known."""
        return len(self._asking) + self._service.remembered

    def arrives(self, generation: GenerationId, account: Account) -> None:
        """A block of it waits; there was none of this generation."""
        self._accounts[generation] = account
        self._asking[account] += 1

    def withdraw(self, generation: GenerationId) -> None:
        """There is none any more."""
        account = self._accounts.pop(generation, None)
        if account is not None:
            self._asking[account] -= 1
            if not self._asking[account]:
                del self._asking[account]

    def in_turn(
        self, pending: Sequence[PendingVerification], done: Iterable[PendingVerification], chunk_tokens: int
    ) -> Sequence[PendingVerification]:
        """The pending with arrivals and deadlines by turn where accounts compete for a pass's ``chunk_tokens``.

        Those that should be ``done`` with the step under way are counted only.
        """
        if len(self._asking) < 2:
            if self._cold:
                self._cold, self._service = {}, AccountService()
            return pending
        cold = {block.generation: block for block in pending if block.prefix_tokens}
        self._count(cold | {block.generation: block for block in done if block.prefix_tokens})
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
                arrived_at_s = nextafter(arrived_at_s, -inf)
                shown[block.generation] = replace(block, arrived_at_s=arrived_at_s, deadline_at_s=deadline_at_s)
        return [shown.get(block.generation, block) for block in pending]

    def prefill_order(
        self, done: Iterable[GenerationId], batch: Sequence[PendingVerification]
    ) -> tuple[GenerationId, ...]:
        """In which order those of a planned batch share its chunk; () where it does not matter.

        First whoever should be ``done`` with the step under way: it may be in the next one all the same.
        """
        if not self._service.several:
            return ()
        return (*done, *(block.generation for block in batch if block.prefix_tokens))

    def _first(self, blocks: list[PendingVerification], chunk_tokens: int) -> list[PendingVerification]:
        """Whose turn it is, as far as one pass's chunk goes."""

        def account_level(account: Account) -> Level:
            return self._service.of_account(account), 0.0

        def user_level(account: Account) -> Level:
            return self._service.of_user(account), 0.0

        def amount(block: PendingVerification) -> float:
            return float(min(block.prefix_tokens, chunk_tokens))

        first, left = list[PendingVerification](), chunk_tokens
        for block in fair_order(blocks, self._account, account_level, user_level, amount):
            first.append(block)
            left -= block.prefix_tokens
            if left <= 0:
                break
        return first

    def _account(self, block: PendingVerification) -> Account:
        return self._accounts.get(block.generation, NO_ACCOUNT)

    def _count(self, cold: Mapping[GenerationId, PendingVerification]) -> None:
        """Charge what was computed since the last plan. What is cold no more was computed to its end."""
        joined = {name: (self._account(block), block.prefix_tokens) for name, block in cold.items()}
        for name, (account, _) in joined.items():
            if name not in self._cold:
                self._service.join(account)
        for name, (account, had) in self._cold.items():
            _, left = joined.get(name, (account, 0))
            if left < had:
                self._service.charge(account, had - left)
        for name, (account, _) in self._cold.items():
            if name not in joined:
                self._service.remove(account)
        self._cold = joined
