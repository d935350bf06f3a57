"""`captured_step`: a training step that becomes a CUDA graph once its launches are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.graphs.pattern import Pattern, pattern_of
from rpukit.torch.graphs.recording import Recording, Tiles
from rpukit.torch.graphs.replay import CaptureFault, GraphReplay, capture
from rpukit.torch.graphs.steady import unsteady

__all__ = ["CapturedStep", "captured_step"]

Tensor = Any
Module = Any
_N_SEEN = 3  # steps that are compared
_MOST_TRIED = 12  # eager steps before the first capture


def captured_step(model: Module, loss: Callable[..., Tensor], optimiser: Any) -> CapturedStep:
    """Make a training step that is replayed as one CUDA graph, with the draws of fresh steps.

    A call is ``optimiser.zero_grad()``, ``loss(model(x), target).backward()`` and
    ``optimiser.step()``. The first calls run as they are, and are compared. Then the step is
    captured, and later calls replay it; before each replay the launches get the numbers of the
    samples and events that are due. So the bits are those of the plain loop, always.

    Parameters
    ----------
    model : Module
        On one GPU; on a CPU, where there are no graphs, all calls run as they are.
    loss : callable
        Takes the output of the model and the further arguments of a call.
    optimiser : AnalogSGD, AnalogAdam or another one of PyTorch
        Adam with ``capturable=True``.

    Returns
    -------
    CapturedStep

    Raises
    ------
    ParameterError

    Notes
    -----
    Learning rates, sizes of mini-batches and modes of layers are part of the graph. A call with
    another size runs as it is; after a change of the others the step is captured anew, which
    takes three calls. Products between the steps, as for a test, move the clocks and are allowed.

    Steps stay eager where their launches depend on their number in more than arguments: transfers
    of a Tiki-Taka cell that do not fall due alike in each step, random slices, learned input
    ranges. `CapturedStep.reason` then says why.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> model = rk.torch.nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=7)
    >>> optimiser = rk.torch.optim.AnalogSGD(model.parameters(), lr=0.1)
    >>> step = rk.torch.captured_step(model, torch.nn.functional.cross_entropy, optimiser)
    >>> for _ in range(5):
    ...     loss = step(torch.ones(2, 4), torch.tensor([0, 1]))
    >>> loss.shape, step.captured, step.reason
    (torch.Size([]), False, 'the model is on the CPU')
    """
    return CapturedStep(model, loss, optimiser)


class CapturedStep:
    """A training step; see `captured_step`.

    Parameters
    ----------
    model : Module
    loss : callable
    optimiser : AnalogSGD, AnalogAdam or another one of PyTorch

    Raises
    ------
    ParameterError

    Attributes
    ----------
    reason : str
        Why the step is not captured; empty if it is, or may be yet.
    """

    def __init__(self, model: Module, loss: Callable[..., Tensor], optimiser: Any) -> None:
        if not isinstance(model, torch.nn.Module) or not callable(loss):
            raise ParameterError(
                f"captured_step: got {type(model).__name__} and {type(loss).__name__}, need a "
                "Module and a function of its output and a target"
            )
        if not isinstance(optimiser, torch.optim.Optimizer):
            raise ParameterError(f"optimiser: got {type(optimiser).__name__}, need one of PyTorch")
        self._model, self._loss, self._optimiser = model, loss, optimiser
        self._modules, self._parameters = list(model.modules()), list(model.parameters())
        self._key: Any = None
        self._forget()

    def _forget(self) -> None:
        """Begin anew: nothing is known of the launches."""
        self.reason = ""
        self._tiles = Tiles(self._model)
        self._seen: list[Recording] = []
        self._n_tried = 0
        self._replay: GraphReplay | None = None
        self._static: tuple[Tensor, ...] = ()

    @property
    def captured(self) -> bool:
        """Whether calls replay a graph."""
        return self._replay is not None

    def __call__(self, x: Tensor, *targets: Tensor) -> Tensor:
        """Take a step of training.

        Parameters
        ----------
        x : Tensor
            Input of the model.
        *targets : Tensor
            Further arguments of the loss.

        Returns
        -------
        Tensor
            The loss, without its graph. A later call may overwrite it.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, ParameterError, NonFiniteError
        """
        given = (x, *targets)
        key = self._settings()
        fits = self._replay is None or self._replay.fits()
        if key != self._key or not (fits and self._tiles.unchanged):
            self._key = key
            self._forget()
            self.reason = self._refused(given)
        if self._replay is not None and _alike(given, self._static):
            for held, new in zip(self._static, given, strict=True):
                if held is not new:
                    held.copy_(new)
            return self._replay()
        if self.reason or self._replay is not None:
            return self._eager(given)
        return self._observed(given)

    def _settings(self) -> Any:
        """What a graph has of the model and the optimiser besides tensors and clocks."""
        groups = [
            [value for name, value in group.items() if name != "params"]
            for group in self._optimiser.param_groups
        ]
        modes = [module.training for module in self._modules]
        return groups, modes, [p.requires_grad for p in self._parameters]

    def _refused(self, given: tuple[Any, ...]) -> str:
        """Say why a step cannot be captured; empty if it may be."""
        if not all(isinstance(t, torch.Tensor) for t in given):
            return "an argument is no tensor"
        if not all(t.is_cuda for t in given) or not all(p.is_cuda for p in self._parameters):
            return "the model is on the CPU"
        if any(weight.group is not None for weight in self._tiles.weights):
            return "several processes train the model"
        if any(not group.get("capturable", True) for group in self._optimiser.param_groups):
            return "the optimiser needs capturable=True"
        return ""

    def _eager(self, given: tuple[Any, ...]) -> Tensor:
        self._optimiser.zero_grad()
        loss = self._loss(self._model(given[0]), *given[1:])
        loss.backward()
        self._optimiser.step()
        return loss.detach()

    def _observed(self, given: tuple[Any, ...]) -> Tensor:
        """Run a step and record it; capture the next one if the launches are known."""
        if self._static and not _alike(given, self._static):
            return self._eager(given)
        pattern = pattern_of(self._seen) if len(self._seen) == _N_SEEN else "too few steps"
        if isinstance(pattern, Pattern):
            return self._captured(given, pattern)
        if self._n_tried >= _MOST_TRIED:
            self.reason = pattern
            self._seen = []
            return self._eager(given)
        if not self._static:
            self._static = tuple(t.detach().clone() for t in given)
        recording = Recording(self._tiles)
        with recording.running():
            loss = self._eager(given)
        self._n_tried += 1
        self._seen = [*self._seen, recording][-_N_SEEN:]
        self.reason = self._not_steady(recording)
        if self.reason:
            self._seen = []
        return loss

    def _not_steady(self, recording: Recording) -> str:
        for k, tile in enumerate(self._tiles.tiles):
            # The clocks come first; a later memory counts the samples that they skipped.
            starts, ends = (dict(each[k][0]) for each in (recording.before, recording.after))
            n = ends.get("update", ends["forward"]) - starts.get("update", starts["forward"])
            found = unsteady(tile, n)
            if found:
                return found
        return ""

    def _captured(self, given: tuple[Any, ...], pattern: Pattern) -> Tensor:
        for held, new in zip(self._static, given, strict=True):
            held.copy_(new)
        try:
            with torch.cuda.device(given[0].device):
                self._replay = capture(lambda: self._eager(self._static), self._tiles, pattern)
        except CaptureFault as fault:
            self.reason = str(fault)
            return self._eager(given)
        finally:
            self._seen = []
        return self._replay()


def _alike(given: tuple[Tensor, ...], static: tuple[Tensor, ...]) -> bool:
    return len(given) == len(static) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
        for a, b in zip(given, static, strict=True)
    )
