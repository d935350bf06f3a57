"""The exact arithmetic under all mirrors, and the decorator that compiles them."""
