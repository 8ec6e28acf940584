"""Ray actors: thin shells around the engines of ``outrider``, and the transport between them."""
