"""Models: the built-in pair, loading of targets and drafters, and files of trained weights."""

from outrider.models.distributions import look_up_one_by_one

look_up_one_by_one()  # before any module imports transformers
