"""The page: a playground and the live fleet, in a browser. ``assets/`` is what the browser gets, as it is."""
