"""Processes of the tiles of a grid: programming, drift, reading, decay, pulses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

from rpukit._checks import number
from rpukit._kernels.calls import CallState, changes
from rpukit._kernels.entering import enters_device
from rpukit.errors import ParameterError, RpukitError


@enters_device()
class GridProcesses:
    """Part of a grid of tiles: what each of its tiles does by itself."""

    _call_state: CallState
    _exact: bool
    _device: Any

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Iterate over the tiles, by blocks of outputs, then by blocks of inputs."""

    def _each(self, method: str, *args: Any, **options: Any) -> Self:
        """Call a method of all tiles; raise if tiles of this kind have none."""
        tiles = list(self)
        if not hasattr(tiles[0], method):
            kind = type(tiles[0]).__name__
            raise ParameterError(
                f"{method}: tiles of class {kind} do not have it; need "
                + ("a cell that learns by pulses" if self._exact else "an InferenceCell")
            )
        return self._all(lambda k, j, tile: getattr(tile, method)(*args, **options))

    def _all(self, call: Callable[[int, int, Any], Any]) -> Self:
        """Make a call of each tile; an error of the first one leaves the grid unchanged."""
        for k, j, tile in self._placed():
            self._call_state.changing()
            try:
                call(k, j, tile)
            except RpukitError:
                if k == j == 0:
                    self._call_state.unchanged()
                raise
        return self

    @abstractmethod
    def _placed(self) -> Iterator[tuple[int, int, Any]]:
        """Iterate over the tiles with their places in the grid."""

    @changes
    def program(self, *, event: int | None = None) -> Self:
        """Write the weights of all tiles into their cells, in place.

        Parameters
        ----------
        event : int, optional
            Number of the programming, which identifies its draws; default: the next one.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError, NonFiniteError
        """
        return self._each("program", event=event)

    @changes
    def drift_to(self, t: float, *, number: int = 0) -> Self:
        """Set the time after programming and read all cells at that time, in place.

        Parameters
        ----------
        t : float, at least 0, seconds
        number : int, 0 to 65535
            Of several readings at this time.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("drift_to", t, number=number)

    @changes
    def read(self, *, number: int | None = None) -> Self:
        """Read all cells again at the present time, in place.

        Parameters
        ----------
        number : int, 0 to 65535, optional

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("read", number=number)

    @changes
    def unprogram(self) -> Self:
        """Restore the digital weights, in place.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("unprogram")

    @changes
    def post_step(self) -> Self:
        """Do what the tiles do after each mini-batch, in place.

        Tiles that learn by pulses diffuse and decay; inference tiles clip, remap and modify their
        weights.

        Returns
        -------
        TileGrid
            Itself.
        """
        return self._each("post_step")

    @changes
    def decay(self, alpha: float = 1.0) -> Self:
        """Let all weights relax towards their resting points once, in place.

        Parameters
        ----------
        alpha : float, at least 0
            Scale of the decay rate.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("decay", alpha)

    @changes
    def diffuse(self) -> Self:
        """Let all weights take one step of their random walk, in place.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("diffuse")

    @changes
    def drift(self, dt: float = 1.0) -> Self:
        """Let the weights of cells with `DriftParameters` drift for a time, in place.

        Parameters
        ----------
        dt : float, at least 0, seconds

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("drift", dt)

    @changes
    def reset(self, prob: float = 1.0) -> Self:
        """Reset cells to their resting points with a spread of ``reset_std``, in place.

        Parameters
        ----------
        prob : float, 0 to 1
            Probability that a cell is reset.

        Returns
        -------
        TileGrid
            Itself.

        Raises
        ------
        ParameterError
        """
        return self._each("reset", prob=prob)

    @property
    def n_pulses(self) -> int:
        """Number of pulses that all cells have received; reading it synchronises."""
        return sum(getattr(tile, "n_pulses", 0) for tile in self)

    def energy(self, energy_per_pulse: float) -> float:
        """Compute the energy of all pulses so far.

        Parameters
        ----------
        energy_per_pulse : float, at least 0, in any unit of energy

        Returns
        -------
        float
            In the same unit; reading it synchronises.

        Raises
        ------
        ParameterError
        """
        return self.n_pulses * number(energy_per_pulse, "energy_per_pulse", low=0)
