"""What happens to the weights of a tile besides learning: set, decay, diffuse, reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rpukit import _device
from rpukit.analog._guard import Guard, check_finite
from rpukit.analog.cells import Cell, PulsedCell
from rpukit.analog.slow import Bounds, clip_weights, decay, diffusion, reset, write_noise
from rpukit.errors import NonFiniteError, ParameterError, ShapeError
from rpukit.random import Stream

Array = Any


class Processes:
    """Part of `AnalogTile`: reading and setting weights, and the slow processes."""

    shape: tuple[int, int]
    cell: Cell
    stream: Stream
    _arrays: dict[str, Array]
    _clocks: dict[str, int]
    _device: _device.Device
    _guard: Guard

    @property
    def _stored(self) -> Array:
        """What pulses and slow processes act on."""
        return self._arrays.get("persistent", self._arrays["weight"])

    @property
    def _bounds(self) -> Bounds:
        if not isinstance(self.cell, PulsedCell):
            return None
        planes = self._arrays["planes"]
        return planes[self.cell.PLANES.index("w_min")], planes[self.cell.PLANES.index("w_max")]

    def _tick(self, clock: str) -> int:
        event = self._clocks[clock]
        self._clocks[clock] = event + 1
        return event

    def _settle(self, *, clip: bool = True, noise: bool = True) -> None:
        """Bring stored weights into bounds, and show them through write noise."""
        if clip and self._bounds is not None:
            clip_weights(self._stored, self._bounds, status=self._guard.status)
        if "persistent" not in self._arrays:
            return
        if noise:
            write_noise(
                self._stored,
                self._arrays["weight"],
                self.cell.write_noise,
                stream=self.stream,
                event=self._tick("write_noise"),
                status=self._guard.status,
            )
        else:
            self._arrays["weight"][...] = self._stored

    def get_weights(self) -> Array:
        """Read the weights exactly, without the periphery.

        Returns
        -------
        array, shape (n_out, n_in), float32
            A copy on the tile's device; reading synchronises.

        Raises
        ------
        NonFiniteError
            If an earlier call on a GPU met NaN or infinity.
        """
        self._guard.check()
        return self._arrays["weight"].copy()

    def set_weights(self, weight: Array) -> Any:
        """Set the weights, clipped to the bounds of their cells, in place.

        Parameters
        ----------
        weight : array, shape (n_out, n_in), float32

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        array = _device.as_array(weight, self._device, np.float32, "weight")
        if array.shape != self.shape:
            raise ShapeError(f"weight: got shape {tuple(array.shape)}, need {self.shape}")
        if _device.runs_kernels(_device.namespace(array)):
            call = self._guard.begin("weight")
            check_finite(array, status=self._guard.status, call=call)
            self._guard.check()
        elif not np.isfinite(array).all():
            raise NonFiniteError("weight holds NaN or infinity; the tile is unchanged")
        self._stored[...] = array
        self._settle(noise=getattr(self.cell, "apply_write_noise_on_set", False))
        return self

    def set_cells(self, **arrays: Array) -> Any:
        """Replace per-cell parameters, for instance by measured ones, in place.

        Parameters
        ----------
        **arrays : array, shape (n_out, n_in), float32
            Any of the names of `cells`. Weights are clipped to new bounds.

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError, NonFiniteError

        Examples
        --------
        >>> import numpy as np, rpukit as rk
        >>> tile = rk.AnalogTile((2, 3), rk.ConstantStep(), seed=1)
        >>> _ = tile.set_cells(w_max=np.full((2, 3), 0.5, np.float32))
        >>> float(tile.cells["w_max"].max())
        0.5
        """
        known: Mapping[str, Array] = self.cells  # type: ignore[attr-defined]
        ready = {}
        for name, array in arrays.items():
            if name not in known:
                raise ParameterError(
                    f"{name}: not a parameter of these cells, need one of {sorted(known)}"
                )
            array = _device.as_array(array, self._device, np.float32, name)
            if array.shape != self.shape:
                raise ShapeError(f"{name}: got shape {tuple(array.shape)}, need {self.shape}")
            if not np.isfinite(_device.to_numpy(array)).all():
                raise NonFiniteError(f"{name} holds NaN or infinity; the tile is unchanged")
            ready[name] = array
        self._check_bounds(known, ready)
        for name, array in ready.items():
            known[name][...] = array
        self._settle(noise=False)
        return self

    @staticmethod
    def _check_bounds(known: Mapping[str, Array], new: Mapping[str, Array]) -> None:
        low, high = (new.get(name, known.get(name)) for name in ("w_min", "w_max"))
        if low is not None and high is not None and bool((low > high).any()):
            raise ParameterError("w_min is above w_max in some cells")

    def decay(self, alpha: float = 1.0) -> Any:
        """Let the weights relax towards their resting point once, in place.

        ``w = (w - b)(1 + alpha (s - 1)) + b``, ``s = 1 - 1 / lifetime``, b the resting point.

        Parameters
        ----------
        alpha : float, at least 0
            Scale of the decay rate.

        Returns
        -------
        AnalogTile
            Itself. Without a lifetime nothing happens.

        Raises
        ------
        ParameterError
        """
        if not alpha >= 0:
            raise ParameterError(f"alpha: got {alpha!r}, need a number from 0")
        if "decay_scale" in self._arrays:
            decay(
                self._stored,
                float(alpha),
                self._arrays["decay_scale"],
                self._arrays.get("reset_bias"),
                self._bounds,
                status=self._guard.status,
            )
            self._settle(clip=False)
        return self

    def diffuse(self) -> Any:
        """Let the weights take one step of their random walk, in place.

        Returns
        -------
        AnalogTile
            Itself. Without diffusion nothing happens.
        """
        if "diffusion_rate" in self._arrays:
            diffusion(
                self._stored,
                self._arrays["diffusion_rate"],
                self._bounds,
                stream=self.stream,
                event=self._tick("diffusion"),
                status=self._guard.status,
            )
            self._settle(clip=False)
        return self

    def reset(self, first_col: int = 0, n_col: int | None = None, prob: float = 1.0) -> Any:
        """Reset columns to their resting points with a spread of ``reset_std``, in place.

        Parameters
        ----------
        first_col : int, 0 to n_in - 1
        n_col : int, 0 to n_in, optional
            Number of columns, counted modulo n_in; default: all.
        prob : float, 0 to 1
            Probability of each cell.

        Returns
        -------
        AnalogTile
            Itself.

        Raises
        ------
        ParameterError
        """
        n_in = self.shape[1]
        n_col = n_in if n_col is None else n_col
        if not (0 <= first_col < n_in and 0 <= n_col <= n_in and 0 <= prob <= 1):
            raise ParameterError(
                f"reset: got first_col={first_col!r}, n_col={n_col!r}, prob={prob!r}; need "
                f"0 <= first_col < {n_in}, 0 <= n_col <= {n_in}, 0 <= prob <= 1"
            )
        if n_col:
            reset(
                self._stored,
                int(first_col),
                int(n_col),
                float(prob),
                float(self.cell.reset_std),  # type: ignore[attr-defined]
                self._arrays.get("reset_bias"),
                self._bounds,
                stream=self.stream,
                event=self._tick("reset"),
                status=self._guard.status,
            )
            self._settle(clip=False)
        return self

    def post_step(self) -> Any:
        """Diffuse, then decay: what a device does by itself once per mini-batch, in place.

        Returns
        -------
        AnalogTile
            Itself.
        """
        self.diffuse()
        self.decay()
        return self
