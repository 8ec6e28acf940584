"""Grammars that take long, within all bounds on what they repeat."""

# Each slash may open an expression that nothing closes: 7 s.
ENDLESS = 'start: "a" ' + "/\\" * 15_000
