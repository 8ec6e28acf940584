"""Llama-family decoders on CPUs in compiled loops: a pass takes few calls per layer."""
