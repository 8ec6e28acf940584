"""Start and operate Outrider: the command line, a local cluster, and files to deploy to other machines."""
