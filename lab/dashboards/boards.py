"""All dashboards."""

from lab.dashboards import fleet, link, overview, speculation, verifier

BOARDS = (overview.BOARD, speculation.BOARD, link.BOARD, verifier.BOARD, fleet.BOARD)
