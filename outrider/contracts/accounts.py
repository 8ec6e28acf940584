"""The account a request is charged to: verifier time is shared fairly among accounts."""

from typing import NamedTuple


class Account(NamedTuple):
    """Account of a request. Both fields are hashes: neither key names nor addresses leave the ingress."""

    name: str = ""  # of an API key; without keys, of the client's address. "": all requests share one account
    user: str = ""  # the request's ``user``: it divides the account's share and never gets a share of its own


NO_ACCOUNT = Account()
