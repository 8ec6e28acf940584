"""The documentation's site: reference pages drawn from the code, and links that hold there (``make docs``)."""
