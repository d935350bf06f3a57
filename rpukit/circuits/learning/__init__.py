"""Learning: EM, gradient steps, fitting."""
