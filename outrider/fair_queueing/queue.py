"""A bounded queue that serves accounts in turn. Pure."""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class FairQueue(Generic[Item]):
    """Items wait by account; each account has at most ``max_taken`` items taken and not released.

    So an account that fills the queue delays others by no more than the items under way.
    """

    max_waiting: int  # of one account
    max_waiting_in_all: int
    max_taken: int  # of one account at a time
    _waiting: dict[str, deque[Item]] = field(default_factory=dict)  # accounts in the order of their turns
    _taken: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waiting(self, account: str) -> int:
        return len(self._waiting.get(account, ()))

    def put(self, account: str, item: Item) -> bool:
        """Add an item behind its account's others; return whether it fitted.

        When the queue is full, an account below its even share may still add items.
        """
        own = self.waiting(account)
        even_share = self.max_waiting_in_all // (len(self._waiting.keys() | {account}))
        if own >= self.max_waiting or (len(self) >= self.max_waiting_in_all and own >= max(even_share, 1)):
            return False
        self._waiting.setdefault(account, deque()).append(item)
        return True

    def take(self) -> tuple[str, Item] | None:
        """Return the next item and its account; None if no account with items may have another one taken."""
        account = next((each for each in self._waiting if self._taken[each] < self.max_taken), None)
        if account is None:
            return None
        items = self._waiting.pop(account)
        item = items.popleft()
        if items:
            self._waiting[account] = items  # behind the others
        self._taken[account] += 1
        return account, item

    def release(self, account: str) -> None:
        """Count a taken item of an account as done."""
        self._taken[account] -= 1
        if not self._taken[account]:
            del self._taken[account]

    def remove(self, account: str, item: Item) -> None:
        """Remove a waiting item; no effect if it was taken."""
        items = self._waiting.get(account, deque[Item]())
        if item in items:
            items.remove(item)
            if not items:
                del self._waiting[account]
