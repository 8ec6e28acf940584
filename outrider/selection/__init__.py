"""Choice of a round's plan (protocol, window, tree shape) and of the speculation mode. One module per policy."""
