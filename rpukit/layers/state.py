"""States of networks: the kinds of layers that a file may name, and what is kept of each."""

from __future__ import annotations

import math
from typing import Any

from rpukit._files.schema import anything, integer, listing, record, table, text
from rpukit.analog.tile.saving import header_of
from rpukit.errors import FormatError, ParameterError
from rpukit.inference.grid.array import TileArray
from rpukit.layers.geometry import Window
from rpukit.layers.plain import AvgPool2d, Flatten, Layer, MaxPool2d, ReLU, Tanh
from rpukit.layers.weights import Conv2d, Dense, TileLayer

FORMAT = "rpukit.Network"
_KINDS: dict[str, type[Layer]] = {
    kind.__name__: kind for kind in (AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU, Tanh)
}
_PIXELS = listing(integer(0, 1 << 32), 2)
_WINDOW = record(dict.fromkeys(("kernel", "stride", "padding", "dilation"), _PIXELS))
_KIND = text(*_KINDS)
_HEADER = record(
    {**dict.fromkeys(("format", "version"), anything), "layers": listing(table(anything))}
)


def state_of(layers: list[Layer]) -> dict[str, Any]:
    """Return the layers as plain data: a header each, and arrays under ``k.`` and their name."""
    headers: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for k, layer in enumerate(layers):
        if _KINDS.get(type(layer).__name__) is not type(layer):
            raise ParameterError(
                f"layers[{k}]: a {type(layer).__name__} has no form in files; save the arrays of "
                "the network one by one, and build the network anew"
            )
        header: dict[str, Any] = {"kind": type(layer).__name__}
        if isinstance(layer, TileLayer):
            if layer.n_kept:
                raise ParameterError(
                    f"layers[{k}]: samples wait for an update; call update or forget first"
                )
            part = layer.array.state()
            header["array"] = part["header"]
            arrays |= {f"{k}.{name}": array for name, array in part["arrays"].items()}
        if isinstance(layer, (Conv2d, MaxPool2d, AvgPool2d)):
            window = layer.window
            header["window"] = {n: list(getattr(window, n)) for n in Window.__slots__}
        headers.append(header)
    return {"header": {"format": FORMAT, "version": 1, "layers": headers}, "arrays": arrays}


def parts_of(state: Any) -> list[tuple[type[Layer], Window | None, dict[str, Any] | None]]:
    """Return the class, the window and the state of the weights of each layer, checked."""
    header = header_of(state, FORMAT, {1: _HEADER})
    arrays, parts = dict(state["arrays"]), []
    for k, one in enumerate(header["layers"]):
        kind, window, part = _KINDS[_KIND(one.get("kind"), f"layers[{k}].kind")], None, None
        known = {"kind"}
        if issubclass(kind, TileLayer):
            own = {n: arrays.pop(n) for n in list(arrays) if n.startswith(f"{k}.")}
            own = {name.removeprefix(f"{k}."): array for name, array in own.items()}
            part, known = {"header": one.get("array"), "arrays": own}, known | {"array"}
        if issubclass(kind, (Conv2d, MaxPool2d, AvgPool2d)):
            found, known = _WINDOW(one.get("window"), f"layers[{k}].window"), known | {"window"}
            window = Window(**{name: tuple(pixels) for name, pixels in found.items()})
            if min(*window.kernel, *window.stride, *window.dilation) < 1:
                raise FormatError(f"layers[{k}].window: got {found}, need sizes of at least 1")
        if set(one) != known:
            raise FormatError(f"layers[{k}]: got {sorted(one)}, need {sorted(known)}")
        parts.append((kind, window, part))
    if not parts:
        raise FormatError("layers: need at least one")
    if arrays:
        raise FormatError(f"arrays: {sorted(arrays)[0]!r} belongs to no layer")
    return parts


def layers_of(state: Any, device: Any) -> list[Layer]:
    """Build the layers of a checked state."""
    layers = []
    for kind, window, part in parts_of(state):
        layer = kind.__new__(kind)
        if isinstance(layer, TileLayer) and part is not None:
            layer._hold(TileArray.from_state(part, device))
        if window is not None:
            layer.window = window  # type: ignore[attr-defined]
        if isinstance(layer, Conv2d):
            n_in, n_place = layer.array.shape[1], math.prod(layer.window.kernel)
            if n_in % n_place:
                raise FormatError(f"layers: {n_in} inputs are no multiple of {n_place} places")
            layer.in_channels = n_in // n_place
        layers.append(layer)
    return layers


def check_state(state: Any) -> None:
    """Check a state before memory is taken for it."""
    for _, _, part in parts_of(state):
        if part is not None:
            TileArray._check_state(part)
