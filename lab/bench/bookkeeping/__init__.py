"""What everything but the model costs: coordinator, ingress and verifier around an engine that only sleeps."""
