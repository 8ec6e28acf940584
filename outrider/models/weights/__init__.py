"""Weights shipped with the package; a package itself, so that setuptools installs them."""
