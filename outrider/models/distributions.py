"""Look up installed distributions one by one, as transformers asks for a few when it is imported.

``importlib.metadata`` reads the file lists of all of them, which takes half of the CPU time of that import.
"""

import importlib.metadata
from collections.abc import Iterator, Mapping
from functools import cached_property

READ_ALL = importlib.metadata.packages_distributions


class InstalledDistributions(Mapping[str, list[str]]):
    """Names of the distributions that provide a package; one of the same name is taken to be the only one."""

    @cached_property
    def _all(self) -> Mapping[str, list[str]]:
        return READ_ALL()

    def __getitem__(self, package: str) -> list[str]:
        try:
            return [str(importlib.metadata.distribution(package).metadata["Name"])]
        except (importlib.metadata.PackageNotFoundError, ValueError):
            return self._all[package]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


def look_up_one_by_one() -> None:
    """From now on in this process."""
    importlib.metadata.packages_distributions = InstalledDistributions
