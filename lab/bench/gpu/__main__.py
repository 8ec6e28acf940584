"""``python -m lab.bench.gpu``: as ``outrider bench gpu``, where the package is not installed."""

import sys

from lab.bench.gpu.command import main

main(sys.argv[1:])
