"""``python -m lab.bench.gpu``: ``outrider bench gpu`` without an installed package."""

import sys

from lab.bench.gpu.command import main

main(sys.argv[1:])
