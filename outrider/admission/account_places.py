"""Share places between accounts: the account with the fewest goes next; on a tie the one served least so far. Pure.

Service is counted in places times time. A response with a greater share of KV than of places counts as more places in
proportion (dominant resource fairness, Ghodsi et al., NSDI 2011). An account may hold all places while no other waits.
An account that holds none, or less than a fourth of what another holds, gets one more every ``PATIENCE_S`` if the other
has best effort: the account with the most has its youngest best-effort response suspended. Nothing more is taken:
shares become equal as responses end.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from outrider.admission.responses import TrackedResponse
from outrider.contracts.accounts import Account
from outrider.scheduling.fair_order import AccountService, Level, fair_order

PlacesOf = Callable[[TrackedResponse], float]
PATIENCE_S = 0.5  # longer than places take to become free where responses are short
_FAR_MORE = 4  # times as many places; with less, nearly equal accounts would suspend each other's responses


class AccountPlaces:
    """Order of accounts. ``service`` counts every response that waits, is active, suspended or stalled."""

    def __init__(self) -> None:
        self.service = AccountService()
        self._counted_at_s = 0.0

    @property
    def several(self) -> bool:
        return self.service.several

    def count(self, active: Iterable[TrackedResponse], now_s: float) -> None:
        """Charge active responses for the time since the last call."""
        passed_s, self._counted_at_s = now_s - self._counted_at_s, max(now_s, self._counted_at_s)
        if self.several and passed_s > 0.0:
            for one in active:
                self.service.charge(one.account, passed_s)

    def order(
        self, waiting: Iterable[TrackedResponse], active: Iterable[TrackedResponse], places_of: PlacesOf
    ) -> Iterator[TrackedResponse]:
        """Yield waiting responses of one precedence, given by arrival, in the order in which they get places."""
        by_account, by_user = _held(active, places_of)

        def account_level(account: Account) -> Level:
            return by_account[account.name], self.service.of_account(account)

        def user_level(account: Account) -> Level:
            return by_user[account], self.service.of_user(account)

        return fair_order(waiting, lambda one: one.account, account_level, user_level, places_of)

    def pick_to_suspend(
        self, account: Account, active: Sequence[TrackedResponse], places_of: PlacesOf
    ) -> TrackedResponse | None:
        """Return the response to suspend for an account that holds far fewer places; None if there is none."""
        numbers, (held, _) = Counter(one.account.name for one in active), _held(active, places_of)
        most = _FAR_MORE * held[account.name]
        # Nobody loses its only response. ``reversed``: of responses begun at the same time, max() takes the last.
        crowd = [
            one
            for one in reversed(active)
            if not one.promised and numbers[one.account.name] > 1 and held[one.account.name] > most
        ]
        return max(crowd, key=lambda one: (held[one.account.name], one.begun_at_s), default=None)


def by_priority(waiting: list[TrackedResponse]) -> list[TrackedResponse]:
    """Order responses of one account and user by priority; others keep their places."""
    if not any(one.asked.priority for one in waiting):
        return waiting
    own = defaultdict[Account, list[TrackedResponse]](list)
    for one in waiting:
        own[one.account].append(one)
    ordered = {
        account: iter(sorted(ones, key=lambda one: (not one.asked.resumed, one.asked.priority)))
        for account, ones in own.items()
    }
    return [next(ordered[one.account]) for one in waiting]


def last_in_queue(
    queued: Iterable[TrackedResponse], refusable: Iterable[TrackedResponse], most: int
) -> TrackedResponse | None:
    """Return the response to refuse where more than ``most`` wait; None if no account holds more than its even share.

    It is of the account with the most responses in the queue, best effort before promises, and the newest of these.
    Suspended responses count as waiting and are never refused. An account loses none to those of another while it has
    no more than its even share of the queue.
    """
    by_account, by_user = _numbers(queued)
    last = max(
        refusable,
        key=lambda one: (
            by_account[one.account.name],
            not one.promised,
            by_user[one.account],
            one.asked.asked_at_s,
            one.asked.name,
        ),
        default=None,
    )
    if last is None or by_account[last.account.name] <= most // len(by_account):
        return None
    return last


def _held(responses: Iterable[TrackedResponse], places_of: PlacesOf) -> tuple[dict[str, float], dict[Account, float]]:
    by_account, by_user = defaultdict[str, float](float), defaultdict[Account, float](float)
    for one in responses:
        places = places_of(one)
        by_account[one.account.name] += places
        by_user[one.account] += places
    return by_account, by_user


def _numbers(responses: Iterable[TrackedResponse]) -> tuple[Counter[str], Counter[Account]]:
    by_user = Counter(one.account for one in responses)
    by_account = Counter[str]()
    for account, number in by_user.items():
        by_account[account.name] += number
    return by_account, by_user
