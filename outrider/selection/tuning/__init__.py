"""Choosing the speculation mode of a verifier by measurement: epochs, rewards and trials."""
