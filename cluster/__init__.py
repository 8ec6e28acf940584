"""Start and operate Outrider: the command line, a local cluster, and the files that deploy to other machines."""
