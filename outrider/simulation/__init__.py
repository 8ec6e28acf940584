"""A discrete-event simulator: the product's scheduling, ledger and link code under a virtual clock."""
