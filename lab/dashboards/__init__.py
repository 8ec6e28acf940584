"""Generates dashboards and rules. Each board is plain data in its own module; only ``grafana`` uses Grafana's SDK."""
