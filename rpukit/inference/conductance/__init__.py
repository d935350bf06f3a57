"""From weights to conductances and back: converters, curves, programming and reading."""
