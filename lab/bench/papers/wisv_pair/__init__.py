"""WISV's evaluation with a pair that is at hand: what a decision head costs and brings, and how fast that is."""
