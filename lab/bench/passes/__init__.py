"""One forward pass: its cost against reading its bytes once, against vLLM's pass, and against an inexact one."""
