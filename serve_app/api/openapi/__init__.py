"""The HTTP API described: ``/openapi.json`` and ``/docs``, made of the very bodies that requests are read into."""
