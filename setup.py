"""For tools that still look for this file; everything is in pyproject.toml."""

import setuptools

setuptools.setup()
