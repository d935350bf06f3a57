"""`AnalogTile`: its products, updates, state and counters."""
