"""Every exception that rpukit raises.

Each class also derives from the builtin that NumPy users catch, so that ``except ValueError``
keeps working. A message says what was wrong, what was got and needed, and what to do.
"""

__all__ = [
    "CopyError",
    "DTypeError",
    "DeviceError",
    "EstimatorError",
    "FormatError",
    "GraphError",
    "InterruptedCallError",
    "KernelCompileError",
    "LaunchError",
    "MemoryLimitError",
    "NonFiniteError",
    "OnnxError",
    "ParameterError",
    "PlanError",
    "PlotError",
    "RpukitError",
    "SaveError",
    "ShapeError",
    "StructureError",
    "ThreadError",
    "TorchError",
    "TransferError",
]


class RpukitError(Exception):
    """Root of all errors of rpukit."""


class ShapeError(RpukitError, ValueError):
    """An array has the wrong number of axes or the wrong lengths."""


class DTypeError(RpukitError, TypeError):
    """An array or argument has a type that the operation does not take."""


class ParameterError(RpukitError, ValueError):
    """A parameter is outside its range, or parameters contradict each other."""


class CopyError(ParameterError, BufferError):
    """Memory was asked for that is only handed out as a copy."""


class MemoryLimitError(ParameterError, MemoryError):
    """A size asks for more memory than there is; nothing was built."""


class NonFiniteError(RpukitError, ValueError):
    """An input holds NaN or infinity where only finite values make sense."""


class FormatError(RpukitError, ValueError):
    """A file or a state dictionary is not what rpukit wrote, or is of a newer format."""


class InterruptedCallError(RpukitError, RuntimeError):
    """An earlier call was cut short, by Ctrl-C or an error, and left its object half changed."""


class ThreadError(RpukitError, RuntimeError):
    """An object is called while another thread is inside a call of it."""


class SaveError(RpukitError, OSError):
    """A file could not be written: the disk is full, or the folder is not writable.

    What was in its place before is still there, whole.
    """


class EstimatorError(RpukitError, ImportError):
    """The package scikit-learn is missing, or too old."""


class StructureError(RpukitError, ValueError):
    """A circuit is not what it must be: smooth, decomposable, with nodes of fitting sizes."""


class GraphError(RpukitError, ValueError):
    """A training graph is malformed: unknown ops, cycles, shapes that do not fit."""


class OnnxError(RpukitError, ImportError):
    """The package onnx is missing."""


class PlanError(RpukitError, ValueError):
    """A graph does not fit the levels of memory, or a plan is not safe to run."""


class TransferError(RpukitError, RuntimeError):
    """A transfer between levels of memory failed while a plan was run."""


class DeviceError(RpukitError, RuntimeError):
    """A compute device is missing, or arrays live on different devices."""


class KernelCompileError(DeviceError):
    """A kernel source did not compile.

    Attributes
    ----------
    log : str
        The compiler's output.
    source : str
        The expanded source that was compiled.
    """

    def __init__(self, message: str, log: str = "", source: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.source = source


class LaunchError(DeviceError):
    """A kernel was called with arguments that its signature does not allow."""


class PlotError(RpukitError, ImportError):
    """Matplotlib is missing."""


class TorchError(RpukitError, ImportError):
    """PyTorch is missing."""
