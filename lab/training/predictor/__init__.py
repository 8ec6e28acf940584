"""Train what tells how probable it is that a draft token is accepted, and compare kinds of models that could."""
