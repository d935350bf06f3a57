"""`AnalogSettings`, which need no PyTorch: they are those of `rpukit.inference.grid`."""

from rpukit.inference.grid.settings import AnalogSettings, settings_of

__all__ = ["AnalogSettings", "settings_of"]
