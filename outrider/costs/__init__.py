"""How long a batch takes on a machine: measured, fitted, kept in profiles, corrected while serving."""
