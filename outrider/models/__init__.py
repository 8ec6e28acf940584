"""Models: the built-in pair, loading of targets and drafters, and files of trained weights."""
