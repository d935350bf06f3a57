"""Tests of the bench for devices: pulses, fits, reading, retention."""
