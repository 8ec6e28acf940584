"""The commands of ``outrider`` that need a source checkout."""
