"""Weights shipped with the package; a package itself, so that they are installed with it."""
