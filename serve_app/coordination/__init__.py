"""A coordinator: generations, their rounds, the batcher before the verifier, the ways to the drafters."""
