"""How models mark their reasoning, and how it is read from their text."""
