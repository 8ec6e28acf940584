"""The ingress deployment: streams from coordinators, API keys and their gates."""
