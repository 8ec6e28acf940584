"""Build engines and links from the configuration."""
