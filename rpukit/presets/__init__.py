"""Measured devices and common tiles, ready to use; settings of aihwkit read from dictionaries.

``rk.presets.device("ReRamES")`` is a cell, ``rk.presets.config("ReRamES")`` all parameters of a
tile with it, and `from_dict` reads a configuration of aihwkit, given as plain dictionaries.
"""

from rpukit.analog.presets import TileConfig, config, config_names, device, device_names
from rpukit.presets.trees import from_dict

__all__ = ["TileConfig", "config", "config_names", "device", "device_names", "from_dict"]
