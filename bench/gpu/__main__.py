"""``python -m bench.gpu``: ``outrider bench gpu`` without an installed package."""

import sys

from bench.gpu.command import main

main(sys.argv[1:])
