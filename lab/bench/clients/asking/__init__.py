"""The clients' scripts. They run where Outrider is not installed, so they import only a client and each other."""
