"""Who a request is charged to: what verifiers' time is shared fairly between."""

from typing import NamedTuple


class Account(NamedTuple):
    """Hashes: neither a key's name nor an address is known behind the ingress.

    Attributes:
        name: of an API key; without keys, of the client's address. "": nobody is told from another.
        user: whom the request names as its ``user``: divides the account's share, and is never given one of its own.
    """

    name: str = ""
    user: str = ""


NO_ACCOUNT = Account()
