"""What crosses the link of a block, one module per protocol."""
