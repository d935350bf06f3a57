"""`SplitFace`: what all tiles that are split over devices tell about that, and their copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from rpukit._kernels.entering import enters_device
from rpukit.analog.sharded.checks import SPLITS
from rpukit.analog.sharded.products import Layout


@enters_device()
class SplitFace:
    """Mixin for tiles that are split over several devices."""

    WHOLE: ClassVar[Any]  # class of the tile on one device, which has the same state

    _layout: Layout
    state: Any
    from_state: Any

    @property
    def devices(self) -> tuple[str, ...]:
        """Compute device of each block."""
        return tuple(map(str, self._layout.devices))

    @property
    def edges(self) -> tuple[int, ...]:
        """First row or column of each block, and the number of them all."""
        return self._layout.edges

    @property
    def split(self) -> str:
        """How the tile is split: "outputs" (each device has rows) or "inputs" (columns)."""
        return SPLITS[self._layout.axis]

    def to(self, device: str | Sequence[str]) -> Any:
        """Copy the tile to one device, or to several others.

        Parameters
        ----------
        device : str or sequence of str

        Returns
        -------
        tile
            On one device of the class that is not split; the same later calls give the same bits.

        Raises
        ------
        ParameterError, DeviceError, NonFiniteError
        """
        if isinstance(device, str):
            return self.WHOLE.from_state(self.state(), device)
        return self.from_state(self.state(), device, split=self.split)

    def copy(self) -> Self:
        """Copy the tile; the same later calls give the same bits on both.

        Returns
        -------
        tile
            Of the same class, on the same devices.
        """
        layout = self._layout
        where: Any = {"split": self.split, "cuts": layout.edges[1:-1]}
        made: Self = self.from_state(self.state(), layout.devices, **where)
        return made

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles are made on the CPU, so that a machine with another number of GPUs can load them.
        return self.WHOLE.from_state, (self.state(),)
