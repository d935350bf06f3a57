"""Arguments of commands: sizes, levels of memory, files, and names with the nearest known one."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rpukit import _device
from rpukit._checks import did_you_mean
from rpukit.cli.output import WIDTH, wrapped
from rpukit.errors import ParameterError
from rpukit.tiled.machine import Hierarchy, gpu, siracusa_l2, siracusa_l3

__all__ = [
    "PRESETS",
    "Parser",
    "chosen_device",
    "existing",
    "named",
    "parse_levels",
    "parse_size",
    "writable",
]

_SIZE = re.compile(r"(\d[\d_]*(?:\.\d+)?) ?([kKMGT]?)(i?)B?")
_FEW = 20  # names that fit a message
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}

PRESETS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "siracusa_l2": (siracusa_l2, ("l1", "l2")),
    "siracusa_l3": (siracusa_l3, ("l1", "l2", "l3")),
    "gpu": (gpu, ("budget", "host")),
}


class Parser(argparse.ArgumentParser):
    """A parser that knows the nearest name, and writes help in 80 columns."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["formatter_class"] = partial(argparse.RawDescriptionHelpFormatter, width=WIDTH)
        super().__init__(*args, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(one) for one in action.choices]
            hint = did_you_mean(value, known)
            message = f"got {value!r}, need one of {', '.join(known)}{hint}"
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        """Print the usage and an error in 80 columns, and exit with status 2.

        Parameters
        ----------
        message : str
        """
        self.print_usage(sys.stderr)
        self.exit(2, "\n".join(wrapped(f"error: {message}", indent=4)) + "\n")

    def unknown(self, words: list[str]) -> NoReturn:
        """Refuse words that no option takes, each with the nearest option.

        Parameters
        ----------
        words : list of str
        """
        known = [text for action in self._actions for text in action.option_strings]
        hint = "".join(did_you_mean(word.split("=")[0], known) for word in words[:1])
        self.error(f"not understood: {' '.join(words)}{hint}")


def parse_size(text: str) -> int:
    """Read a number of bytes: 16000, 16k, 1.5M, 64KiB, 2GiB.

    Parameters
    ----------
    text : str
        k, M, G and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024.

    Returns
    -------
    int

    Raises
    ------
    argparse.ArgumentTypeError
        As the parser of options wants it.

    Examples
    --------
    >>> [parse_size(text) for text in ("16000", "16k", "64KiB", "1.5M")]
    [16000, 16000, 65536, 1500000]
    """
    found = _SIZE.fullmatch(text.strip())
    if found:
        number, unit, binary = found.groups()
        whole, _, part = number.replace("_", "").partition(".")
        base = int((1024 if binary else 1000) ** _POWERS[unit])
        bytes_, rest = divmod(int(whole + part) * base, int(10 ** len(part)))
        if not rest and (unit or not binary) and bytes_:
            return bytes_
    raise argparse.ArgumentTypeError(
        f"got {text!r}, need whole bytes such as 16000, 16k (16000), 64KiB (65536), 1.5M or 2GiB"
    )


def parse_levels(text: str, l1: int | None = None) -> Hierarchy:
    """Read levels of memory: a preset, sizes, or both.

    Parameters
    ----------
    text : str
        Such as ``siracusa_l3``, ``l1=64k,l2=1M`` or ``gpu,budget=2GiB``. Without a preset the
        names of the sizes tell which one is meant.
    l1 : int, optional
        Bytes of the level L1.

    Returns
    -------
    Hierarchy

    Raises
    ------
    ParameterError

    Examples
    --------
    >>> [level.bytes for level in parse_levels("l1=64k,l2=1M").levels]
    [1000000, 64000]
    """
    preset, sizes = "", {} if l1 is None else {"l1": l1}
    for part in text.split(","):
        name, given, value = part.strip().partition("=")
        if given:
            try:
                sizes[name.strip().lower()] = parse_size(value)
            except argparse.ArgumentTypeError as error:
                raise ParameterError(f"--levels, {name}: {error}") from None
        elif preset or name not in PRESETS:
            raise ParameterError(f"--levels: got {text!r}, need {_how(name)}")
        else:
            preset = name
    if not preset:
        outer = {"host": "gpu", "budget": "gpu", "l3": "siracusa_l3"}
        preset = next((outer[name] for name in outer if name in sizes), "siracusa_l2")
    make, known = PRESETS[preset]
    for name in sizes:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ParameterError(
                f"--levels: {preset} has no level {name!r}, only {', '.join(known)}{hint}"
            )
    if preset == "gpu" and "budget" not in sizes:
        raise ParameterError(
            "--levels gpu: say how many bytes of the GPU's memory tiles may take, such as "
            "gpu,budget=2GiB"
        )
    levels: Hierarchy = make(**sizes)
    return levels


def _how(name: str) -> str:
    ways = f"{', '.join(PRESETS)}, sizes such as l1=64k,l2=1M, or both"
    return f"{ways}{did_you_mean(name, PRESETS)}"


def named(value: str, what: str, known: Iterable[str]) -> str:
    """Check a name of a command's argument.

    Parameters
    ----------
    value, what : str
        The name, and what it names.
    known : iterable of str

    Returns
    -------
    str

    Raises
    ------
    ParameterError
    """
    names = list(known)
    if value not in names:
        hint = did_you_mean(value, names)
        there = f": there are {', '.join(names)}" if len(names) <= _FEW else ""
        stop = "" if hint else ";"
        where = "" if there else f"{stop} `python -m rpukit {what}s` lists all"
        raise ParameterError(f"no {what} {value!r}{there}{hint}{where}")
    return value


def chosen_device(text: str) -> str:
    """Read the name of a device: "auto" is a GPU if there is one.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Raises
    ------
    ParameterError, DeviceError
    """
    name = ("gpu" if _device.gpu_count() else "cpu") if text == "auto" else text
    _device.parse_device(name)
    return name


def existing(path: str, what: str) -> str:
    """Check that a file is there.

    Parameters
    ----------
    path, what : str
        The path, and what the file has to hold.

    Returns
    -------
    str

    Raises
    ------
    ParameterError
    """
    place = Path(path)
    if place.is_dir():
        inside = ", ".join(sorted(one.name for one in place.glob("*.*"))[:5])
        hint = f"; it holds {inside}" if inside else ""
        raise ParameterError(f"{path} is a folder, need {what}{hint}")
    if not place.is_file():
        folder = place.parent
        if not folder.is_dir():
            raise ParameterError(f"no folder {folder}, where {place.name} should be: {what}")
        hint = did_you_mean(place.name, (one.name for one in folder.iterdir()))
        raise ParameterError(f"no file {path}, need {what}{hint}")
    return path


def writable(path: str, option: str) -> str:
    """Check that the folder of a file to write is there.

    Parameters
    ----------
    path, option : str

    Returns
    -------
    str

    Raises
    ------
    ParameterError
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise ParameterError(f"{option} {path}: no folder {folder}; make it first")
    if Path(path).is_dir():
        raise ParameterError(f"{option} {path}: a folder, need the name of a file")
    return path
