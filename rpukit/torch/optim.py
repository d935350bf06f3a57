"""Optimisers for models with analog layers: pulses for tiles, PyTorch's rule for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpukit.errors import ParameterError
from rpukit.torch._torch import torch
from rpukit.torch.bridge import on_device
from rpukit.torch.weight import AnalogWeight

__all__ = ["AnalogAdam", "AnalogSGD"]


class _Analog:
    """Part of the optimisers: parameters that are tiles."""

    param_groups: list[dict[str, Any]]
    _step_supports_amp_scaling = True  # then a GradScaler gives its scale to `step`, which refuses

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; tiles among them keep the samples of backward passes.

        Parameters
        ----------
        param_group : dict
        """
        super().add_param_group(param_group)  # type: ignore[misc]
        for weight in self._tiles(self.param_groups[-1]):
            weight.collects = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the parameters, and the samples of the tiles.

        Parameters
        ----------
        set_to_none : bool
        """
        super().zero_grad(set_to_none)  # type: ignore[misc]
        for group in self.param_groups:
            for weight in self._tiles(group):
                weight.grad = None
                weight.samples.clear()
                weight.tally = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the digital parameters, then the tiles.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model again and returns the loss.

        Returns
        -------
        Any
            What the closure returned.

        Raises
        ------
        ParameterError, NonFiniteError
        """
        if getattr(self, "grad_scale", None) is not None:
            raise ParameterError(
                "GradScaler: the errors that tiles learn from cannot be scaled; use bfloat16, "
                "which needs no scaled loss"
            )
        loss = super().step(closure)  # type: ignore[misc]
        for group in self.param_groups:
            for weight in self._tiles(group):
                if weight.pending or weight.group is not None:
                    rate = float(group["lr"])
                    weight.learn(-rate if group.get("maximize") else rate)
                if weight.pending:
                    with on_device(weight):
                        weight.array.post_step()
        return loss

    @staticmethod
    def _tiles(group: dict[str, Any]) -> list[AnalogWeight]:
        return [p for p in group["params"] if isinstance(p, AnalogWeight)]


class AnalogSGD(_Analog, torch.optim.SGD):  # type: ignore[misc]
    """Stochastic gradient descent: pulsed updates for tiles, ``torch.optim.SGD`` for the rest.

    Parameters
    ----------
    params : iterable of Parameter or of dict
        As of ``torch.optim.SGD``; groups may have learning rates of their own.
    lr, momentum, dampening, weight_decay, nesterov, maximize : as of ``torch.optim.SGD``
    foreach, differentiable, fused : as of ``torch.optim.SGD``

    Notes
    -----
    A step changes the tiles by ``-lr d x^T`` on average, with pulses (inference tiles: exactly),
    from the inputs x and errors d of all backward passes since ``zero_grad``, in their order. So
    gradients accumulate as usual, and a mini-batch in several passes gives the bits of one.
    Afterwards the tiles' own processes run (``post_step``). Momentum and weight decay act on the
    digital parameters only.

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=7)
    >>> optimiser = rk.torch.optim.AnalogSGD(layer.parameters(), lr=0.1)
    >>> before = layer.get_weights()
    >>> layer(torch.ones(5, 4)).square().sum().backward()
    >>> optimiser.step()
    >>> bool((layer.get_weights() != before).any())
    True
    """


class AnalogAdam(_Analog, torch.optim.Adam):  # type: ignore[misc]
    """Pulsed updates for tiles, as of `AnalogSGD`, and ``torch.optim.Adam`` for the rest.

    Parameters
    ----------
    params : iterable of Parameter or of dict
        Give the tiles a group of their own where their learning rate differs.
    lr, betas, eps, weight_decay, amsgrad, maximize : as of ``torch.optim.Adam``
    foreach, capturable, differentiable, fused : as of ``torch.optim.Adam``
    decoupled_weight_decay : as of ``torch.optim.Adam``

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogLinear(4, 3, cell=rk.SoftBounds(), seed=7)
    >>> groups = [{"params": [layer.analog_weight], "lr": 0.1}, {"params": [layer.bias]}]
    >>> optimiser = rk.torch.optim.AnalogAdam(groups, lr=1e-3)
    """
