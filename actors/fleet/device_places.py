"""Places of devices in their groups: which are free, and how many each identity has. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from actors.messages import DrafterId
from outrider.config.drafters import DrafterGroupConfig
from outrider.wire.dialling import RefusalCode, Refused

MOST_OF_ONE = 16  # devices by one key or certificate


class DevicePlaces:
    def __init__(self) -> None:
        self._taken = defaultdict[str, set[int]](set)  # by group
        self._of_identity = Counter[str]()

    def take(self, place: DrafterId, identity: str) -> None:
        self._taken[place.group].add(place.index)
        self._of_identity[identity] += 1

    def free(self, place: DrafterId, identity: str) -> None:
        self._taken[place.group].discard(place.index)
        self._of_identity[identity] -= 1
        if not self._of_identity[identity]:
            del self._of_identity[identity]

    def is_taken(self, place: DrafterId) -> bool:
        return place.index in self._taken[place.group]

    def find(self, groups: Sequence[DrafterGroupConfig], identity: str) -> DrafterId | Refused:
        """Return a free place for a device in the first group that takes it."""
        if self._of_identity[identity] >= MOST_OF_ONE:
            return Refused(RefusalCode.TOO_MANY, f"needs at most {MOST_OF_ONE} devices of {identity}", 60)
        may = [group for group in groups if group.may_join(identity)]
        for group in may:
            taken = self._taken[group.name]
            index = next((index for index in range(group.max_devices) if index not in taken), None)
            if index is not None:
                return DrafterId(group.name, index)
        if may:
            return Refused(RefusalCode.GROUP_FULL, f"group {may[-1].name} has {may[-1].max_devices} devices", 30)
        return Refused(RefusalCode.GROUP_CLOSED, f"no group takes {identity}", 60)
