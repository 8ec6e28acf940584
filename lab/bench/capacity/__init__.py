"""Number of users whose promises are kept: emulated devices, a real coordinator's core, a real verifier."""
