"""Commands, their options, and how errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from rpukit._version import __version__
from rpukit.cli.arguments import Parser
from rpukit.cli.output import wrapped
from rpukit.errors import DeviceError, KernelCompileError, RpukitError

__all__ = ["main"]


class _Command(NamedTuple):
    """A command: its help, and where its functions are."""

    text: str
    module: str
    add: str = "add_arguments"
    run: str = "run"


_COMMANDS = {
    "info": _Command("versions, devices, compiler, cache and missing packages", "rpukit.cli.info"),
    "demo": _Command(
        "train a network of analog tiles on handwritten digits", "rpukit.demo", run="main"
    ),
    "study": _Command(
        "measure a device by pulses: response, steps, states, symmetric point", "rpukit.cli.study"
    ),
    "fit": _Command("fit device models to measured pulses, and save the cell", "rpukit.cli.fit"),
    "plan": _Command(
        "plan a training graph over levels of memory",
        "rpukit.cli.plans",
        "add_plan_arguments",
        "run_plan",
    ),
    "codegen": _Command(
        "write a planned training graph and its optimiser as C99",
        "rpukit.cli.plans",
        "add_codegen_arguments",
        "run_codegen",
    ),
    "golden": _Command("show that this machine gives the recorded bits", "rpukit.cli.golden"),
    "kernels": _Command(
        "every kernel with its op and class of bit contract",
        "rpukit.cli.kernels",
        "add_kernels_arguments",
        "run_kernels",
    ),
    "check": _Command(
        "compile kernels for their architectures, without a GPU",
        "rpukit.cli.kernels",
        "add_check_arguments",
        "run_check",
    ),
}


def _parser(chosen: str | None) -> Parser:
    """Make the parser; only the chosen command gets its options, so that a start is quick."""
    parser = Parser(
        prog="python -m rpukit",
        description="Analog tiles, circuits and tiled training on CPU and GPU.",
        epilog="`python -m rpukit COMMAND --help` has the options and an example of a command.",
    )
    parser.add_argument("--version", action="version", version=f"rpukit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    for name, command in _COMMANDS.items():
        description = f"{command.text[0].upper()}{command.text[1:]}."
        own = commands.add_parser(name, help=command.text, description=description)
        if name == chosen:
            module = import_module(command.module)
            getattr(module, command.add)(own)
            own.set_defaults(run=getattr(module, command.run), parser=own)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        Default: the words after the program's name.

    Returns
    -------
    int
        The exit status: 0, 1 where a check failed, 2 after an error.
    """
    words = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in words if not word.startswith("-")), None)
    parser = _parser(chosen)
    if not words:
        parser.error(f"no command given, need one of {', '.join(_COMMANDS)}")
    args, rest = parser.parse_known_args(words)
    if rest:
        args.parser.unknown(rest)
    run: Callable[[Any], int] = args.run
    del args.run, args.parser, args.command
    try:
        status = int(run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader closed the pipe: `python -m rpukit kernels | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RpukitError, OSError) as error:
        lines = wrapped(f"error:\0{_said(error)}", indent=4)  # no break after the first word
        print("\n".join(lines).replace("\0", " "), file=sys.stderr)
    return 2


def _said(error: Exception) -> str:
    """Write an error for a terminal; drivers and compilers say much, of which one line helps."""
    if isinstance(error, DeviceError) and not isinstance(error, KernelCompileError):
        return str(error).splitlines()[0]
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"  # a file is missing or not writable
    return str(error)
