"""WISV's evaluation with an available pair: score cost and gain of a decision head, and its speed."""
