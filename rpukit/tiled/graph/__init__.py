"""Build, read, differentiate and rewrite training graphs."""
