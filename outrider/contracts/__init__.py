"""Frozen data that rooms hand each other, and the interfaces of what they call. Imports nothing from above."""
