"""Discrete-event simulator: the product's scheduling, ledger and link code on a virtual clock."""
