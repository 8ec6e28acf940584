"""Simulation of many verifiers behind the product's router, with drafters and traffic (see ``run``)."""
