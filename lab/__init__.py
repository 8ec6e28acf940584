"""Research, planning and benchmarks: in a source checkout, in no package (docs/architecture.md)."""
