"""Choose what to do in the next round of a generation: protocol, window and tree shape. One module per policy."""
