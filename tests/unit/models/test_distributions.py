"""Which distributions transformers is told of: the installed ones, without the file lists of all being read."""

import subprocess
import sys

import pytest

from outrider.models.distributions import READ_ALL, InstalledDistributions

# As they were before anything of ours was imported.
PROGRAM = """
import importlib.metadata, sys
read_all, reads = importlib.metadata.packages_distributions, []
importlib.metadata.packages_distributions = lambda: reads.append(1) or read_all()
import {modules}
print(len(reads), 'transformers' in sys.modules)
"""


def test_each_package_has_its_distribution() -> None:
    told = InstalledDistributions()
    everything = READ_ALL()
    assert list(told) == list(everything)
    assert len(told) == len(everything)
    for package in everything:
        assert set(told[package]) <= set(everything[package]), package
    assert "yaml" in told, "a package of another name than its distribution's"
    assert "no_such_package" not in told


@pytest.mark.parametrize("modules", ["serve_app.app", "actors.engine_thread"])
def test_processes_import_transformers_without_reading_all(modules: str) -> None:
    program = PROGRAM.format(modules=modules)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
