"""Messages between coordinator and drafter as bits, and the protocols that use them. One module per protocol."""
