"""Decides which coordinator's settings are the newest, by the order of first heartbeats and without a clock. Pure.

Serve starts every replica from its newest configuration, so a coordinator that is first heard later has settings at
least as new. The fleet numbers coordinators in that order and sends each its number. Coordinators send it to a fleet
that was restarted, which so knows the order at once. A coordinator without a number was never heard by an earlier
fleet, so it is newer than all that have one.

An old configuration's last replica may be heard late, even first of all, shortly before it is stopped. So settings
apply as long as their coordinator is heard and for a minute after (it may be restarted); then those of the next newest
apply. A coordinator that is heard again after a longer silence (a network partition) has its former rank.

``hear`` iterates over all coordinators only where one is gone.
"""

from dataclasses import dataclass

from actors.messages import FleetSettings

_KEPT_S = 60.0  # longer than a coordinator takes to restart
_SPARE = 64  # entries of coordinators that are gone
_MOST_RANKS = 1024  # of coordinators that are silent

_Rank = tuple[int, int]  # (0, number from an earlier fleet) or (1, order of the first heartbeat to this one)


@dataclass(slots=True)
class _SettingsEntry:
    session: int
    rank: _Rank
    settings: FleetSettings
    heard_at_s: float


class SettingsOrder:
    def __init__(self) -> None:
        self._entries: dict[str, _SettingsEntry] = {}
        self._silent_ranks: dict[tuple[str, int], _Rank] = {}  # by owner and session
        self._newest: _SettingsEntry | None = None
        self._heard = 0  # coordinators first heard by this fleet
        self._earlier_number = 0  # greatest number from an earlier fleet
        self._alive = 0  # entries left when those that are gone were last dropped

    @property
    def newest(self) -> FleetSettings | None:
        """The settings that apply; None: no coordinator has sent any."""
        return None if self._newest is None else self._newest.settings

    def number(self, owner: str) -> int | None:
        """Return a coordinator's number, which it sends to the next fleet. Numbers may grow; their order stays."""
        entry = self._entries.get(owner)
        if entry is None:
            return None
        earlier, number = entry.rank
        return number if earlier == 0 else self._earlier_number + number

    def hear(self, owner: str, session: int, settings: FleetSettings | None, number: int | None, now_s: float) -> None:
        """Take in a coordinator's heartbeat.

        ``settings`` is None if it has sent them before, ``number`` if no fleet has given it one.
        """
        entry = self._entries.get(owner)
        if entry is not None and entry.session == session:
            entry.heard_at_s = now_s
        elif settings is not None:
            rank = self._silent_ranks.pop((owner, session), None) or self._rank(number)
            self._enter(owner, _SettingsEntry(session, rank, settings, now_s))
        newest = self._newest
        if newest is not None and now_s - newest.heard_at_s > _KEPT_S:
            self._drop_silent(now_s)
            self._newest = max(self._entries.values(), key=lambda each: each.rank, default=newest)

    def _rank(self, number: int | None) -> _Rank:
        if number is None:
            self._heard += 1
            return 1, self._heard
        self._earlier_number = max(self._earlier_number, number)
        return 0, number

    def _enter(self, owner: str, entry: _SettingsEntry) -> None:
        newest = self._newest
        if newest is not None and newest.settings == entry.settings:
            entry.settings = newest.settings  # share one object, to save memory
        self._entries[owner] = entry
        if newest is None or entry.rank > newest.rank:
            self._newest = entry
        if len(self._entries) > 2 * self._alive + _SPARE:
            self._drop_silent(entry.heard_at_s)

    def _drop_silent(self, now_s: float) -> None:
        heard = dict[str, _SettingsEntry]()
        for owner, entry in self._entries.items():
            if now_s - entry.heard_at_s <= _KEPT_S:
                heard[owner] = entry
            else:
                self._silent_ranks[owner, entry.session] = entry.rank
        self._entries, self._alive = heard, len(heard)
        if len(self._silent_ranks) > _MOST_RANKS:
            # Drop the lowest: a coordinator that is heard again with its old number ranks low without its entry, too.
            by_rank = sorted(self._silent_ranks.items(), key=lambda each: each[1])
            self._silent_ranks = dict(by_rank[-_MOST_RANKS // 2 :])
