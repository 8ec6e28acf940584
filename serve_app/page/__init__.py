"""Serves the built-in web page, a playground and a view of the live fleet; ``assets/`` is sent as it is."""
