"""Fair sharing between accounts: whoever was served least goes next, and is charged for what it takes.

The scheduling is deficit round robin with counters of service in place of deficits (virtual token counters, Sheng et
al., "Fairness in Serving Large Language Models", OSDI 2024), at two levels: between accounts, and inside an account
between its users. Items of one account and user keep their order. Pure: what is counted is the caller's to say.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from outrider.contracts.accounts import Account

Item = TypeVar("Item")
Level = tuple[float, float]  # of service, compared in this order; the first grows with what is ordered

_REMEMBERED = 1024  # accounts that are idle, with more service than those that are not


class ServiceCounters:
    """Service that each key of a set has received, among those that are active.

    A key that becomes active begins at the least of the others, so that nobody saves up while idle. One that was
    served more than that before it became idle keeps what it had, so that nobody gains by a pause.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}  # of the active
        self._members = Counter[str]()
        self._idle: dict[str, float] = {}  # those idle for longest first

    @property
    def active(self) -> int:
        """Keys that have members."""
        return len(self._served)

    @property
    def remembered(self) -> int:
        """Keys of which anything is known."""
        return len(self._served) + len(self._idle)

    def join(self, key: str) -> bool:
        """One member more; whether the key has become active by it."""
        self._members[key] += 1
        if key in self._served:
            return False
        self._served[key] = max(self._idle.pop(key, 0.0), self._least())
        return True

    def remove(self, key: str) -> bool:
        """One member less; whether the key has become idle by it."""
        self._members[key] -= 1
        if self._members[key]:
            return False
        del self._members[key]
        served = self._served.pop(key)
        least = self._least()
        if not self._served:
            self._idle.clear()  # nobody has waited for anybody
        elif served > least:
            self._idle[key] = served
            if len(self._idle) > _REMEMBERED:
                self._idle = {name: had for name, had in self._idle.items() if had > least}
            if len(self._idle) > _REMEMBERED:
                del self._idle[next(iter(self._idle))]
        return True

    def charge(self, key: str, amount: float) -> None:
        """An active key was served so much."""
        self._served[key] += amount

    def served(self, key: str) -> float:
        """Of an active key."""
        return self._served[key]

    def _least(self) -> float:
        return min(self._served.values(), default=0.0)


class AccountService:
    """Service that accounts have received, and inside each of them its users."""

    def __init__(self) -> None:
        self._accounts = ServiceCounters()
        self._users: dict[str, ServiceCounters] = {}
        self._active = 0

    @property
    def several(self) -> bool:
        """Whether there is anybody to be fair to: more than one account or user."""
        return self._active > 1

    @property
    def remembered(self) -> int:
        """Accounts and users of which anything is known."""
        return self._accounts.remembered + sum(users.remembered for users in self._users.values())

    def join(self, account: Account) -> None:
        """It has one item more."""
        self._accounts.join(account.name)
        self._active += self._users.setdefault(account.name, ServiceCounters()).join(account.user)

    def remove(self, account: Account) -> None:
        """It has one item less."""
        self._active -= self._users[account.name].remove(account.user)
        if self._accounts.remove(account.name):
            del self._users[account.name]

    def charge(self, account: Account, amount: float) -> None:
        """One with items was served so much."""
        self._accounts.charge(account.name, amount)
        self._users[account.name].charge(account.user, amount)

    def of_account(self, account: Account) -> float:
        """Service received by the account."""
        return self._accounts.served(account.name)

    def of_user(self, account: Account) -> float:
        """By the user inside it."""
        return self._users[account.name].served(account.user)


def fair_order(
    items: Iterable[Item],
    account_of: Callable[[Item], Account],
    account_level: Callable[[Account], Level],
    user_level: Callable[[Account], Level],
    amount_of: Callable[[Item], float],
) -> Iterator[Item]:
    """Items in the order in which they are to be served: each raises the level of its account and user.

    Of equal levels whoever has the earlier item goes first, so that items of one account and user stay as they were.

    Args:
        items: in their own order, such as that of arrival.
        account_of: an item's.
        account_level: of an account, whatever its user.
        user_level: of a user among those of its account.
        amount_of: by how much an item raises the first number of both levels.
    """
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
