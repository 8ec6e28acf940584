"""Description of the HTTP API: ``/openapi.json`` and ``/docs``, generated from the types of bodies and answers."""
