"""Calibration: rates of this machine, measured once and stored in the cache folder."""
