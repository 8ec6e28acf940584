"""Define what of a block crosses the link, one module per protocol."""
