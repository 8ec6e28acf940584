"""WISV's Table I as arithmetic: its rows, acceptances, windows, and the cheaper of its two uploads."""
