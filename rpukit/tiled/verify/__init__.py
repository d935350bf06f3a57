"""Check plans: faults, hazards and simulated time."""
