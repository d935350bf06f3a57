"""Parameters of converters, updates and drift."""
