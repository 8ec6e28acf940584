"""A campaign on a card: what is promised there, and what it costs."""
