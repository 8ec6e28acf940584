"""Training data and trainers."""
