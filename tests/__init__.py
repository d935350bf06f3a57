"""The tests; a package, so that each file has a name of its own and imports others by it."""
