"""Places shared between accounts: who holds fewest goes next, and of those alike who has held least so far. Pure.

What is counted is places times time; a response that has a greater share of KV than of places holds as many more
(dominant resource fairness, Ghodsi et al., NSDI 2011). An account may hold all of them as long as nobody else waits.
One that holds none, or less than a fourth of what another does, has one more every ``PATIENCE_S`` where others are
without a promise: the account with the most has its youngest response suspended. More than that is never taken: shares
become equal as responses end.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from outrider.admission.responses import TrackedResponse
from outrider.contracts.accounts import Account
from outrider.scheduling.fair_order import AccountService, Level, fair_order

PlacesOf = Callable[[TrackedResponse], float]
PATIENCE_S = 0.5  # longer than places take to become free where responses are short
_FAR_MORE = 4  # times as many: less, and whoever is nearly even would stop streams for a place or two


class AccountPlaces:
    """Whose turn it is. ``service`` counts every response that waits, is made or is suspended."""

    def __init__(self) -> None:
        self.service = AccountService()
        self._counted_at_s = 0.0

    @property
    def several(self) -> bool:
        """Whether there is anybody to be fair to."""
        return self.service.several

    def count(self, active: Iterable[TrackedResponse], now_s: float) -> None:
        """Charge those that have held places since the last call."""
        passed_s, self._counted_at_s = now_s - self._counted_at_s, max(now_s, self._counted_at_s)
        if self.several and passed_s > 0.0:
            for one in active:
                self.service.charge(one.account, passed_s)

    def order(
        self, waiting: Iterable[TrackedResponse], active: Iterable[TrackedResponse], places_of: PlacesOf
    ) -> Iterator[TrackedResponse]:
        """Those that wait, of one precedence and by arrival, in the order in which places are theirs."""
        by_account, by_user = _held(active, places_of)

        def account_level(account: Account) -> Level:
            return by_account[account.name], self.service.of_account(account)

        def user_level(account: Account) -> Level:
            return by_user[account], self.service.of_user(account)

        return fair_order(waiting, lambda one: one.account, account_level, user_level, places_of)

    def gives_way(
        self, account: Account, active: Sequence[TrackedResponse], places_of: PlacesOf
    ) -> TrackedResponse | None:
        """Whose place is given to an account that holds far fewer; None if nobody does, or all have promises."""
        numbers, (held, _) = Counter(one.account.name for one in active), _held(active, places_of)
        most = _FAR_MORE * held[account.name]
        crowd = [
            one
            for one in reversed(active)
            if not one.promised and numbers[one.account.name] > 1 and held[one.account.name] > most
        ]
        return max(crowd, key=lambda one: (held[one.account.name], one.begun_at_s), default=None)


def last_in_queue(
    queued: Iterable[TrackedResponse], refusable: Iterable[TrackedResponse], most: int
) -> TrackedResponse | None:
    """Who is refused where more than ``most`` wait: of the account with most, best effort before promises, the newest.

    Those suspended wait as well, and are never refused: whoever has many of them makes nobody else's be refused, as
    long as these are no more than their account's even share.
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
    """How many places each account has, and each of its users."""
    by_account, by_user = defaultdict[str, float](float), defaultdict[Account, float](float)
    for one in responses:
        places = places_of(one)
        by_account[one.account.name] += places
        by_user[one.account] += places
    return by_account, by_user


def _numbers(responses: Iterable[TrackedResponse]) -> tuple[Counter[str], Counter[Account]]:
    """How many there are of each account, and of each of its users."""
    by_user = Counter(one.account for one in responses)
    by_account = Counter[str]()
    for account, number in by_user.items():
        by_account[account.name] += number
    return by_account, by_user
