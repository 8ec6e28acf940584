"""Monitoring of a service: Grafana dashboards, Prometheus rules and alerts, and their provisioning.

The files are package data; ``files`` writes them into a folder, ``running`` starts Prometheus and Grafana on them.
``drawing`` generates dashboards and rules (``python -m lab.dashboards``, with the extra ``monitoring``);
nothing else needs it.
"""
