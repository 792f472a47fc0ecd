"""Parts of the package that know neither a framework nor a driver.

Nothing in this package imports anything outside of the standard library.
"""

VERSION = "0.1.0"
"""The version of the package."""
