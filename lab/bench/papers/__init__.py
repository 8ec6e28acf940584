"""Measurements of the TSLT, DSSD and WISV papers, repeated with a small pair on one machine."""
