"""Corrections that a device draws in place of a rejected token (DSSD)."""
