"""WISV's Table I as arithmetic: its rows, acceptances, windows, and which of its two uploads is the cheaper one."""
