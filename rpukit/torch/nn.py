"""Layers for PyTorch with their weights in tiles."""

from rpukit.torch.layers.attention import AnalogMultiheadAttention
from rpukit.torch.layers.convolutions import AnalogConv1d, AnalogConv2d, AnalogConv3d
from rpukit.torch.layers.grouped import AnalogGroupedConv
from rpukit.torch.layers.linear import AnalogLayer, AnalogLinear
from rpukit.torch.layers.recurrent import AnalogGRU, AnalogLSTM, AnalogRNN
from rpukit.torch.settings import AnalogSettings
from rpukit.torch.weight import AnalogWeight

__all__ = [
    "AnalogConv1d",
    "AnalogConv2d",
    "AnalogConv3d",
    "AnalogGRU",
    "AnalogGroupedConv",
    "AnalogLSTM",
    "AnalogLayer",
    "AnalogLinear",
    "AnalogMultiheadAttention",
    "AnalogRNN",
    "AnalogSettings",
    "AnalogWeight",
]
