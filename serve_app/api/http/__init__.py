"""The API as an ASGI application."""
