"""Grammars that take the library long, within all bounds on what they repeat."""

# The converter of GBNF looks at all rules again for each rule that turns out to be a terminal: minutes.
ENDLESS = "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "a"' for i in range(2000)) + '\nr2000 ::= "a"'
