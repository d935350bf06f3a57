"""Generated C: a plan as C99 sources for microcontrollers."""
