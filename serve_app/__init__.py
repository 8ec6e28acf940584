"""The service: OpenAI's API over Ray Serve, and the coordinators behind it."""
