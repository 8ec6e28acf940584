"""What the families of benchmarks share: how arms take turns, how engines and servers are driven, and what is kept."""
