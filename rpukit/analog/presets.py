"""Measured devices and common tiles, ready to use.

``rk.presets.device("ReRamES")`` is a cell, ``rk.presets.config("ReRamES")`` all parameters of a
tile with it. Names are those of the toolkit that the values come from; "ReRamESPreset" and
"ReRamESPresetDevice" name the same things.

Source of all values: Rasch et al., "A flexible and fast PyTorch toolkit for simulating training
and inference on analog crossbar arrays", AICAS 2021, version 1.2.0; of the devices: see `device`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from rpukit._checks import Checked, did_you_mean, shown
from rpukit.analog.cells import (
    Cell,
    ConstantStep,
    ExpStep,
    LinearStep,
    PulsedCell,
    SoftBoundsReference,
)
from rpukit.analog.cells.chopped_transfer import ChoppedTransfer, DynamicTransfer
from rpukit.analog.cells.compound import OneSided, UpdatePolicy, Vector
from rpukit.analog.cells.mixed_precision import MixedPrecision
from rpukit.analog.cells.transfer import Transfer
from rpukit.analog.parameters.io import BoundManagement, IOParameters, NoiseManagement
from rpukit.analog.parameters.update import UpdateParameters
from rpukit.analog.tile.tile import AnalogTile
from rpukit.errors import ParameterError

__all__ = ["TileConfig", "config", "config_names", "device", "device_names"]

_PERIPHERY = IOParameters(out_bound=20.0, out_noise=0.1)
_READ = replace(
    _PERIPHERY, bound_management=BoundManagement.NONE, noise_management=NoiseManagement.NONE
)
_TRAINS = UpdateParameters()

_ARRAY = SoftBoundsReference(
    w_max=1.0,
    w_min=-1.0,
    dw_min_dtod_log_normal=True,
    corrupt_devices_range=0.01,
    reference_std=0.05,
    subtract_symmetry_point=True,
)
_DEVICES: Mapping[str, PulsedCell] = MappingProxyType(
    {
        "Capacitor": LinearStep(
            dw_min=0.005,
            dw_min_dtod=0.1,
            up_down_dtod=0.06,
            w_max=1.0,
            w_max_dtod=0.07,
            w_min=-1.0,
            w_min_dtod=0.07,
            gamma_up=0.05,
            gamma_down=0.05,
            gamma_up_dtod=0.01,
            gamma_down_dtod=0.01,
            mult_noise=False,
            lifetime=1e6,
            lifetime_dtod=0.3,
        ),
        "EcRam": LinearStep(
            dw_min=0.002,
            dw_min_dtod=0.1,
            w_max=1.1724,
            w_max_dtod=0.05,
            w_min=-0.8276,
            w_min_dtod=0.05,
            gamma_up=0.1153,
            gamma_down=0.5085,
        ),
        "EcRamMO": LinearStep(
            dw_min=0.00028214,
            dw_min_dtod=0.1,
            dw_min_std=2.0,
            w_max=1.1714,
            w_max_dtod=0.05,
            w_min=-0.8286,
            w_min_dtod=0.05,
            gamma_up=0.4152,
            gamma_down=0.7342,
        ),
        "GokmenVlasov": ConstantStep(dw_min=0.0016, w_max=1.0, w_min=-1.0),
        "Idealized": ConstantStep(dw_min=0.0002, up_down_dtod=0.0, w_max=1.0, w_min=-1.0),
        "PCM": ExpStep(
            dw_min=0.01,
            dw_min_dtod=0.2,
            dw_min_std=0.6,
            dw_min_std_add=0.042,
            dw_min_std_slope=0.108,
            up_down_dtod=0.05,
            w_max=2.0,
            w_max_dtod=0.1,
            w_min=0.0,
            w_min_dtod=0.0,
            A_up=-27.235,
            A_down=-2.235,
            gamma_up=2.5,
            gamma_down=2.5,
            a=-1.0,
            b=0.0,
            reset=0.01,
            reset_dtod=0.02,
        ),
        "ReRamArrayHfO2": replace(
            _ARRAY,
            dw_min=0.4622,
            dw_min_dtod=0.7125,
            dw_min_std=0.2174,
            w_max_dtod=0.4295,
            w_min_dtod=0.5990,
            write_noise_std=0.5841,
        ),
        "ReRamArrayOM": replace(
            _ARRAY,
            dw_min=0.0949,
            dw_min_dtod=0.7829,
            dw_min_std=0.4158,
            w_max_dtod=0.3499,
            w_min_dtod=0.5695,
            write_noise_std=1.4113,
        ),
        "ReRamES": ExpStep(
            dw_min=0.00135,
            dw_min_dtod=0.2,
            dw_min_std=5.0,
            up_down=0.259359,
            up_down_dtod=0.05,
            w_max=1.0,
            w_min=-1.0,
            A_up=-1.18445,
            A_down=-0.081404,
            gamma_up=5.0,
            gamma_down=5.0,
            a=-0.5,
            b=-0.5,
            write_noise_std=75.0,
        ),
        "ReRamSB": SoftBoundsReference(
            dw_min=0.002,
            dw_min_std=3.75,
            w_max=1.25,
            w_max_dtod=0.3 / 1.25,
            w_min=-0.75,
            w_min_dtod=0.3 / 0.75,
            write_noise_std=56.0,
        ),
    }
)
_SINGLE = (
    "Capacitor",
    "EcRam",
    "EcRamMO",
    "GokmenVlasov",
    "Idealized",
    "ReRamES",
    "ReRamSB",
)
_SEVERAL = ("Capacitor", "EcRam", "EcRamMO", "Idealized", "ReRamES", "ReRamSB")

# By device: fast_lr, auto_granularity, in_chop_prob, longest train; for AGAD tail_weightening.
_TTV2 = {
    "Capacitor": (0.1, 1000.0, 0.0, 31),
    "EcRam": (0.1, 500.0, 0.0, 100),
    "EcRamMO": (0.1, 500.0, 0.0, 100),
    "Idealized": (0.1, 500.0, 0.0, 100),
    "ReRamES": (0.5, 1000.0, 0.0, 31),
    "ReRamSB": (0.5, 1000.0, 0.0, 31),
}
_CHOPPED_TTV2 = {
    "Capacitor": (0.1, 1000.0, 0.01, 31),
    "EcRam": (1.0, 500.0, 0.01, 100),
    "EcRamMO": (0.1, 500.0, 0.001, 100),
    "Idealized": (0.1, 500.0, 0.001, 100),
    "ReRamES": (0.5, 1000.0, 0.01, 31),
    "ReRamSB": (0.5, 1000.0, 0.01, 31),
}
_AGAD = {
    "Capacitor": (0.1, 1000.0, 0.01, 31, 20.0),
    "EcRam": (0.1, 750.0, 0.005, 31, 50.0),
    "EcRamMO": (0.1, 500.0, 0.005, 100, 50.0),
    "Idealized": (0.1, 500.0, 0.005, 100, 50.0),
    "ReRamES": (0.5, 1000.0, 0.02, 31, 5.0),
    "ReRamSB": (0.5, 1000.0, 0.02, 31, 5.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConfig(Checked):
    """All parameters of a tile.

    Parameters
    ----------
    cell : Cell
    forward, backward : IOParameters
    update : UpdateParameters

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.presets.config("EcRam").tile((2, 3), seed=1)
    AnalogTile((2, 3), LinearStep, device='cpu')
    """

    cell: Cell
    forward: IOParameters = _PERIPHERY
    backward: IOParameters = _PERIPHERY
    update: UpdateParameters = _TRAINS

    def tile(self, shape: tuple[int, int], **options: Any) -> AnalogTile:
        """Make a tile with these parameters.

        Parameters
        ----------
        shape : tuple of int, (n_out, n_in)
        **options
            Of `AnalogTile`: ``device``, ``seed`` and others; also replacements of the parameters.

        Returns
        -------
        AnalogTile

        Raises
        ------
        ParameterError, DTypeError, DeviceError
        """
        parameters = {name: getattr(self, name) for name in ("forward", "backward", "update")}
        return AnalogTile(shape, options.pop("cell", self.cell), **(parameters | options))


def device(name: str, **changes: Any) -> PulsedCell:
    """Give the cell of a measured or assumed device.

    Parameters
    ----------
    name : str
        One of `device_names`.
    **changes
        Parameters of the cell that are to be others.

    Returns
    -------
    PulsedCell

    Raises
    ------
    ParameterError

    Notes
    -----
    Sources: Capacitor: Li et al., VLSI Technology 2018. EcRam: Tang et al., IEDM 2018. EcRamMO:
    Kim et al., IEDM 2019. ReRamES, ReRamSB: Gong et al., Nature Communications 9:2102 (2018).
    ReRamArrayOM, ReRamArrayHfO2: Gong et al., IEDM 2022. PCM: Nandakumar et al., Frontiers in
    Neuroscience 14:406 (2020). GokmenVlasov: Gokmen and Vlasov, Frontiers in Neuroscience 10:333
    (2016). Idealized: Rasch, Gokmen and Haensch, IEEE Design and Test 37:19 (2020).

    None of them drifts: PCM describes programming pulses alone. `rpukit.inference.PCMLike` has
    the drift of phase-change memory; `DriftParameters` adds one to any cell. Capacitor leaks, by
    its ``lifetime``. `rpukit.studies.retention` shows what is left after a time.

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.presets.device("GokmenVlasov", dw_min_std=0).dw_min
    0.0016
    """
    cell: PulsedCell = replace(_found(name, _DEVICES, "PresetDevice"), **changes)
    return cell


def device_names() -> tuple[str, ...]:
    """List the names that `device` knows.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> import rpukit as rk
    >>> "ReRamES" in rk.presets.device_names()
    True
    """
    return tuple(_DEVICES)


def config(name: str) -> TileConfig:
    """Give all parameters of a tile.

    Parameters
    ----------
    name : str
        One of `config_names`: a device, or with "2" or "4" behind it that many of them at each
        cross-point, each sample going to one at random; "PCM" is a pair that only goes up, and
        does not drift. With
        "TikiTaka", "TTv2", "ChoppedTTv2" or "AGAD" before it: a fast and a slow device, and that
        algorithm; with "MixedPrecision": gradients are added up in digital.

    Returns
    -------
    TileConfig

    Raises
    ------
    ParameterError

    Notes
    -----
    The periphery has an output range of 20 and an output noise of 0.1. Algorithms see ReRamSB from
    its symmetry point. Their parameters are those of Rasch et al., Nature Communications 15:7133
    (2024).

    Examples
    --------
    >>> import rpukit as rk
    >>> rk.presets.config("ReRamSB2").cell.update_policy.value
    'SINGLE_RANDOM'
    """
    found: TileConfig = _found(name, _CONFIGS, "Preset")
    return found


def config_names() -> tuple[str, ...]:
    """List the names that `config` knows.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> import rpukit as rk
    >>> "EcRam4" in rk.presets.config_names()
    True
    """
    return tuple(_CONFIGS)


def _found(name: str, known: Mapping[str, Any], ending: str) -> Any:
    value = known.get(str(name).removesuffix(ending))
    if value is None:
        hint = did_you_mean(str(name).removesuffix(ending), known)
        raise ParameterError(f"name: got {shown(name)}, need one of {', '.join(known)}{hint}")
    return value


def _several(name: str, n: int) -> TileConfig:
    policy = UpdatePolicy.SINGLE_RANDOM
    return TileConfig(cell=Vector(devices=(_DEVICES[name],) * n, update_policy=policy))


def _pcm_pair() -> OneSided:
    return OneSided(
        device=_DEVICES["PCM"],
        refresh_every=1,
        refresh_forward=_PERIPHERY,
        refresh_update=_TRAINS,
    )


def _fast_and_slow(name: str) -> dict[str, Any]:
    cell = _DEVICES[name]
    if name == "ReRamSB":
        cell = replace(cell, subtract_symmetry_point=True)  # type: ignore[call-arg]
    return {"devices": (cell, cell), "transfer_forward": _READ}


def _tiki_taka(name: str) -> TileConfig:
    return TileConfig(cell=Transfer(**_fast_and_slow(name)))


def _chopped(
    name: str, fast_lr: float, granularity: float, chop: float, length: int, *tail: float
) -> TileConfig:
    """A tile of TTv2 (no chopping), chopped TTv2, or with a tail AGAD."""
    given = _fast_and_slow(name) | {
        "fast_lr": fast_lr,
        "auto_granularity": granularity,
        "auto_scale": True,
        "in_chop_prob": chop,
    }
    cell = DynamicTransfer(**given, tail_weightening=tail[0]) if tail else ChoppedTransfer(**given)
    return TileConfig(cell=cell, update=replace(_TRAINS, desired_bl=length))


def _mixed_precision(device: PulsedCell | OneSided) -> TileConfig:
    return TileConfig(cell=MixedPrecision(device=device))


_CONFIGS: Mapping[str, TileConfig] = MappingProxyType(
    {name: TileConfig(cell=_DEVICES[name]) for name in _SINGLE}
    | {"PCM": TileConfig(cell=_pcm_pair())}
    | {f"{name}{n}": _several(name, n) for n in (2, 4) for name in _SEVERAL}
    | {f"TikiTaka{name}": _tiki_taka(name) for name in _SEVERAL}
    | {f"TTv2{name}": _chopped(name, *values) for name, values in _TTV2.items()}
    | {f"ChoppedTTv2{name}": _chopped(name, *values) for name, values in _CHOPPED_TTV2.items()}
    | {f"AGAD{name}": _chopped(name, *values) for name, values in _AGAD.items()}
    | {f"MixedPrecision{name}": _mixed_precision(_DEVICES[name]) for name in _SINGLE}
    | {"MixedPrecisionPCM": _mixed_precision(_pcm_pair())}
)
