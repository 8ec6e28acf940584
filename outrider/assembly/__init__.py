"""From the configuration to the engines and links it describes."""
