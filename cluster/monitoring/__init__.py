"""What watches a service: Grafana dashboards, Prometheus rules and alerts, and what brings them there.

The files are data of the package; ``files`` writes them into a folder, ``running`` starts Prometheus and Grafana with
them. ``drawing`` makes the dashboards and rules (``python -m lab.dashboards``, with the extra
``monitoring``); nothing else needs it.
"""
