"""Emulate, measure and predict the link between coordinator and drafter."""
