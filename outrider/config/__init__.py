"""The configuration file: its schema, and how it is read."""
