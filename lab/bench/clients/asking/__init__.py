"""The clients' own scripts. They run where Outrider is not installed: a client is all they import, and each other."""
