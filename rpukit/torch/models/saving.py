"""States of models in files of safetensors: numbers and text only, nothing that is executed."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from rpukit.errors import FormatError, TorchError
from rpukit.torch._torch import torch

__all__ = ["load_safetensors", "save_safetensors"]

Module = Any
_STATE = "_extra_state"  # what PyTorch calls the state of a module that is no tensor
_KEY = "rpukit"


def save_safetensors(model: Module, file: str | Path) -> None:
    """Write the whole state of a model to a file of safetensors.

    Parameters
    ----------
    model : Module
    file : str or Path

    Raises
    ------
    TorchError
        If safetensors is not installed.

    Notes
    -----
    The file has the entries of ``state_dict``: of tiles all their arrays, under names that begin
    with that of the layer. Their settings and clocks are text among the metadata.

    Examples
    --------
    >>> import torch, rpukit as rk  # doctest: +SKIP
    >>> model = rk.torch.convert(torch.nn.Linear(4, 3), rk.SoftBounds())  # doctest: +SKIP
    >>> rk.torch.save_safetensors(model, "model.safetensors")  # doctest: +SKIP
    >>> _ = rk.torch.load_safetensors(model, "model.safetensors")  # doctest: +SKIP
    """
    tensors: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for name, value in model.state_dict().items():
        if name.endswith(_STATE) and isinstance(value, dict) and "header" in value:
            headers[name] = value["header"]
            tensors |= {f"{name}.{key}": array for key, array in value["arrays"].items()}
        else:
            tensors[name] = value
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    _safetensors("torch").save_file(copies, str(file), metadata={_KEY: json.dumps(headers)})


def load_safetensors(model: Module, file: str | Path, *, strict: bool = True) -> Module:
    """Take over the state of a model from a file of safetensors, in place.

    Parameters
    ----------
    model : Module
        With layers of the same shapes; their settings come from the file.
    file : str or Path
    strict : bool
        As of ``load_state_dict``.

    Returns
    -------
    Module
        The model; training goes on to the bits of the model that was saved.

    Raises
    ------
    FormatError, TorchError
    """
    package = _safetensors("")
    try:
        with package.safe_open(str(file), framework="pt") as opened:
            metadata = opened.metadata() or {}
            found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        headers = json.loads(metadata.get(_KEY, "{}"))
    except (package.SafetensorError, ValueError) as error:
        raise FormatError(f"{file}: not a file of save_safetensors: {error}") from error
    state: dict[str, Any] = {}
    for name, header in headers.items():
        own = [key for key in found if key.startswith(f"{name}.")]
        arrays = {key.removeprefix(f"{name}."): found.pop(key) for key in own}
        state[name] = {"header": header, "arrays": arrays}
    with torch.no_grad():
        model.load_state_dict(state | found, strict=strict)
    return model


def _safetensors(part: str) -> Any:
    try:
        return import_module(f"safetensors.{part}" if part else "safetensors")
    except ImportError as error:
        raise TorchError('files of safetensors need: pip install "rpukit[torch]"') from error
