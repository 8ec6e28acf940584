"""Grammars of structured output, and masks of the tokens they allow. No other package uses the grammar library."""
