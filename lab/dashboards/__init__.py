"""Makes dashboards and rules. Each board is plain data in a module of its own; only ``grafana`` knows Grafana's SDK."""
