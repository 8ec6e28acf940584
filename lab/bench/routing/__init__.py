"""Ways to choose a verifier for a request, side by side before real ones."""
