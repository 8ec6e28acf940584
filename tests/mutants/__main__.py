"""Plant every fault of the list and tell which test caught it: ``python -m tests.mutants``; not part of CI.

Exit status 1 if one survives. With ``--whole`` each meets all unit tests of verification, sampling, protocols and
engines in place of the few that are named beside it; other arguments are parts of the names of the faults to plant.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.faults import FAULTS
from tests.mutants.planting import Fault, copied, examine

WHOLE = ("tests/unit", "--ignore-glob=*vllm*", "-k", "(verification or sampling or protocols or engines) and not vllm")


def main(arguments: list[str]) -> int:
    """Print the table; the number of survivors decides the status."""
    whole, wanted = "--whole" in arguments, [argument for argument in arguments if argument != "--whole"]
    chosen = [fault for fault in FAULTS if not wanted or any(part in fault.name for part in wanted)]
    table, survivors, console = Table("fault", "caught by"), 0, Console()
    with TemporaryDirectory() as folder:
        tree = copied(Path(__file__).parents[2], Path(folder))

        def tests_of(fault: Fault) -> tuple[str, ...]:
            return WHOLE if whole else fault.tests

        for found in examine(tree, chosen, tests_of):
            table.add_row(found.fault.name, escape(found.by) or "[bold red]SURVIVED")
            console.print(f"{found.fault.name}: {found.by or 'SURVIVED'}", markup=False, soft_wrap=True)
            survivors += not found.by
    console.print(table)
    console.print(f"{survivors} of {len(chosen)} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
