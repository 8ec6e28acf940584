"""Order work fairly between accounts: the least served account goes next and is charged for what it takes.

The algorithm is deficit round robin with counters of service in place of deficits (virtual token counters, Sheng et
al., "Fairness in Serving Large Language Models", OSDI 2024), at two levels: between accounts, and between the users of
an account. Items of one account and user keep their order. Pure: the caller chooses the unit of service.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from outrider.contracts.accounts import Account

Item = TypeVar("Item")
Level = tuple[float, float]  # service received, compared in this order; the first number grows with each ordered item

_REMEMBERED = 1024  # idle accounts kept because they were served more than the least served active one


class ServiceCounters:
    """Counters of service by key, among the keys that are active.

    A key that becomes active starts at the least counter of the active ones, so idle time earns no credit. A key that
    had more than that when it became idle keeps its counter, so a pause clears no debt.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}  # active keys
        self._members = Counter[str]()
        self._idle: dict[str, float] = {}  # in order of becoming idle

    @property
    def active(self) -> int:
        return len(self._served)

    @property
    def remembered(self) -> int:
        return len(self._served) + len(self._idle)

    def join(self, key: str) -> bool:
        """Add a member; return whether the key became active."""
        self._members[key] += 1
        if key in self._served:
            return False
        self._served[key] = max(self._idle.pop(key, 0.0), self._least())
        return True

    def remove(self, key: str) -> bool:
        """Remove a member; return whether the key became idle."""
        self._members[key] -= 1
        if self._members[key]:
            return False
        del self._members[key]
        served = self._served.pop(key)
        least = self._least()
        if not self._served:
            self._idle.clear()  # nobody competes: no debt to anybody is left
        elif served > least:
            self._idle[key] = served
            if len(self._idle) > _REMEMBERED:
                self._idle = {name: had for name, had in self._idle.items() if had > least}
            if len(self._idle) > _REMEMBERED:
                del self._idle[next(iter(self._idle))]
        return True

    def charge(self, key: str, amount: float) -> None:
        self._served[key] += amount

    def served(self, key: str) -> float:
        return self._served[key]

    def _least(self) -> float:
        return min(self._served.values(), default=0.0)


class AccountService:
    """Service received by each account and, inside each account, by each user."""

    def __init__(self) -> None:
        self._accounts = ServiceCounters()
        self._users: dict[str, ServiceCounters] = {}
        self._active = 0

    @property
    def several(self) -> bool:
        return self._active > 1

    @property
    def remembered(self) -> int:
        return self._accounts.remembered + sum(users.remembered for users in self._users.values())

    def join(self, account: Account) -> None:
        self._accounts.join(account.name)
        self._active += self._users.setdefault(account.name, ServiceCounters()).join(account.user)

    def remove(self, account: Account) -> None:
        self._active -= self._users[account.name].remove(account.user)
        if self._accounts.remove(account.name):
            del self._users[account.name]

    def charge(self, account: Account, amount: float) -> None:
        self._accounts.charge(account.name, amount)
        self._users[account.name].charge(account.user, amount)

    def of_account(self, account: Account) -> float:
        return self._accounts.served(account.name)

    def of_user(self, account: Account) -> float:
        return self._users[account.name].served(account.user)


def fair_order(
    items: Iterable[Item],
    account_of: Callable[[Item], Account],
    account_level: Callable[[Account], Level],
    user_level: Callable[[Account], Level],
    amount_of: Callable[[Item], float],
) -> Iterator[Item]:
    """Yield items in fair order; each yielded item raises the level of its account and user by ``amount_of`` it.

    On equal levels the earlier item goes first, so the order of items within one account and user is kept.
    ``account_level`` counts whatever the user, ``user_level`` among the users of the account.
    """
    # Two nested heaps: accounts by level, and in each account its users by level. Each user has a FIFO queue. The index
    # of the first item breaks ties.
    queues: dict[str, dict[Account, deque[tuple[int, Item]]]] = {}
    for index, item in enumerate(items):
        account = account_of(item)
        queues.setdefault(account.name, {}).setdefault(account, deque()).append((index, item))
    accounts = []
    for own in queues.values():
        users = [(*user_level(account), queue[0][0], queue) for account, queue in own.items()]
        heapify(users)
        accounts.append((*account_level(next(iter(own))), users[0][2], users))
    heapify(accounts)
    while accounts:
        served, behind, _, users = accounts[0]
        user_served, user_behind, _, queue = users[0]
        _, item = queue.popleft()
        yield item
        amount = amount_of(item)
        if queue:
            heapreplace(users, (user_served + amount, user_behind, queue[0][0], queue))
        else:
            heappop(users)
        if users:
            heapreplace(accounts, (served + amount, behind, users[0][2], users))
        else:
            heappop(accounts)
