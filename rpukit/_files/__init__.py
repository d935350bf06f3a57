"""Files that appear whole or not at all, and that are checked before they are believed."""
