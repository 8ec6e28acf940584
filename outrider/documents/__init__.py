"""Read files that operators write, and report their problems in one form."""
