"""The HTTP API described: ``/openapi.json`` and ``/docs``, made of the very types of request bodies and answers."""
