"""Pictures of dashboards for the documentation, where no Grafana can be asked for them."""
