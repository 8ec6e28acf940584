"""To how many users promises are kept: emulated devices against a real coordinator's core and verifier."""
