"""Pictures of dashboards for the documentation, drawn without Grafana."""
