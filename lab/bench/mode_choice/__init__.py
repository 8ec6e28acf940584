"""What a speculation tuner's choice costs: simulated beside every fixed window, and beside no draft at all."""
