"""Model the time of a batch on a machine: measured, fitted, kept in profiles and corrected while serving."""
