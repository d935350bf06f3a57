"""Parameters of the pulsed update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from rpukit._checks import Checked
from rpukit.errors import ParameterError

__all__ = ["PulseType", "UpdateParameters"]

MAX_BIT_LENGTH = 8191  # limit of the pulse number in the counter of a draw


class PulseType(str, Enum):
    """Kind of pulses of an update: how coincidences of x and d are generated.

    Attributes
    ----------
    STOCHASTIC
        The same as STOCHASTIC_COMPRESSED. Hardware without signed trains sends two passes, with
        the same statistics of each cell.
    STOCHASTIC_COMPRESSED
        One random train per line, which carries the line's sign.
    MEAN_COUNT
        Each line's expected number of pulses is rounded; a cell gets the product of the two
        numbers over the bit length, rounded.
    DETERMINISTIC_IMPLICIT
        The rounded expected number of coincidences, no trains.
    NONE
        The exact ``-lr d x^T``, as if the cells were numbers.
    NONE_WITH_DEVICE
        The same, clipped to the bounds of the cells after each sample.
    """

    STOCHASTIC = "STOCHASTIC"
    STOCHASTIC_COMPRESSED = "STOCHASTIC_COMPRESSED"
    MEAN_COUNT = "MEAN_COUNT"
    DETERMINISTIC_IMPLICIT = "DETERMINISTIC_IMPLICIT"
    NONE = "NONE"
    NONE_WITH_DEVICE = "NONE_WITH_DEVICE"


_CODINGS = {PulseType.DETERMINISTIC_IMPLICIT: 1, PulseType.MEAN_COUNT: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateParameters(Checked):
    """Parameters of the pulsed update.

    Parameters
    ----------
    pulse_type : PulseType or str
    desired_bl : int, 1 to 8191
        Bit length: largest number of slots of a pulse train, unless it is lengthened.
    fixed_bl : bool
        Never lengthen trains; otherwise they grow if `desired_bl` steps are too few for lr.
    update_management : bool
        Balance the firing probabilities of x and d by their largest values.
    update_bl_management : bool
        Shorten trains to what the largest product of a sample needs; implies `update_management`.
    um_grad_scale : float, positive
        Factor on the largest d in update management.
    res, x_res_implicit, d_res_implicit : float
        Resolution of the firing probabilities, and that of x and of d with
        ``DETERMINISTIC_IMPLICIT``; above 1: number of steps; 0 or below: off.
    sto_round : bool
        Stochastic rounding to those resolutions.

    Raises
    ------
    ParameterError

    Notes
    -----
    Source: Gokmen and Vlasov, Front. Neurosci. 10:333 (2016); management: Gokmen et al.,
    Front. Neurosci. 11:538 (2017). The formulas are in ``docs/semantics.md``.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.UpdateParameters(desired_bl=10).pulse_type.value
    'STOCHASTIC_COMPRESSED'
    """

    pulse_type: PulseType = PulseType.STOCHASTIC_COMPRESSED
    desired_bl: int = 31
    fixed_bl: bool = True
    update_management: bool = True
    update_bl_management: bool = True
    um_grad_scale: float = 1.0
    res: float = 0.0
    x_res_implicit: float = 0.0
    d_res_implicit: float = 0.0
    sto_round: bool = False

    def _check(self) -> None:
        lengths = f"an integer in [1, {MAX_BIT_LENGTH}]: the number of slots of a train"
        self._need(1 <= self.desired_bl <= MAX_BIT_LENGTH, "desired_bl", lengths)
        self._need(self.um_grad_scale > 0, "um_grad_scale", "a positive number")

    @property
    def implicit(self) -> bool:
        """Whether there are no trains: the update has numbers of pulses, or is exact."""
        return self.exact or self.coding > 0

    @property
    def exact(self) -> bool:
        """Whether weights change by the exact product, without pulses."""
        return self.pulse_type in (PulseType.NONE, PulseType.NONE_WITH_DEVICE)

    @property
    def coding(self) -> int:
        """Content of the words of a train: 0 slots, 1 a probability, 2 a number of pulses."""
        return _CODINGS.get(self.pulse_type, 0)

    @property
    def managed(self) -> bool:
        """Whether update management is on (bit-length management implies it)."""
        return self.update_management or self.update_bl_management

    def resolutions(self) -> tuple[float, float]:
        """Return the steps of the firing probabilities.

        Returns
        -------
        tuple of float
            Those of x and of d; 0 means no quantisation.
        """
        own = self.pulse_type is PulseType.DETERMINISTIC_IMPLICIT
        pair = (self.x_res_implicit, self.d_res_implicit) if own else (self.res, self.res)
        return (_step(pair[0]), _step(pair[1]))

    def base_length(self, lr: float, granularity: float) -> tuple[int, bool]:
        """Return the bit length before management.

        Without a fixed length, trains grow if `desired_bl` steps cannot reach the learning rate.

        Parameters
        ----------
        lr : float, positive
        granularity : float, positive, weight units

        Returns
        -------
        length : int
        unit_scale : bool
            Whether the scales of x and d both start at 1.

        Raises
        ------
        ParameterError
            If the trains would be longer than possible.
        """
        grows = not (self.fixed_bl or self.update_bl_management or self.exact)
        if not grows or granularity * self.desired_bl >= lr:
            return self.desired_bl, False
        length = max(math.ceil(lr / granularity), 1)
        if length > MAX_BIT_LENGTH:
            raise ParameterError(
                f"lr: got {lr:g}, which needs trains of {length} slots at a step of "
                f"{granularity:g}; the limit is {MAX_BIT_LENGTH}: lower lr or use fixed_bl=True"
            )
        return length, True


def _step(res: float) -> float:
    return 1.0 / res if res > 1 else max(res, 0.0)
