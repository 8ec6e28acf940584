"""Decide the number of verifiers and ingresses. Pure: Serve's controller and the simulator use the same code."""
