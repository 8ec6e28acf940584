"""WISP's tables, simulated over several seeds, with the settings of both systems searched on seeds of their own."""
