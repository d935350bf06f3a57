"""Run plans: executors, trainer, generated C and reports."""
