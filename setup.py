"""Build in a folder of its own: a checkout stays as it is, and no wheel has a module that an earlier one had."""

from tempfile import TemporaryDirectory

from setuptools import setup

if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        setup(options={"egg_info": {"egg_base": scratch}, "build": {"build_base": scratch}})
