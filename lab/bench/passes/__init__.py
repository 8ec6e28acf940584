"""One forward pass: its cost beside reading its bytes once, beside vLLM's, and beside one that is not exact."""
