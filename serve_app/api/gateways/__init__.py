"""What gateways, endpoint pickers and probes ask, in their own words."""
