"""Research, planning and benchmarks: in a source checkout, in no package (docs/explanation/architecture.md)."""
