"""`from_dict`: settings of aihwkit, as plain dictionaries, made into ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from rpukit._checks import did_you_mean, shown
from rpukit.analog import presets
from rpukit.analog.cells import Ideal
from rpukit.analog.parameters.io import IOParameters
from rpukit.analog.parameters.update import PulseType, UpdateParameters
from rpukit.errors import ParameterError
from rpukit.inference.grid.cell import InferenceCell
from rpukit.inference.grid.scale import OutputScale
from rpukit.inference.grid.settings import AnalogSettings
from rpukit.presets.names import ANY, CLASSES, CONFIGS, SLOTS

__all__ = ["from_dict"]

Tree = Mapping[str, Any]
_CLASS = ("class", "_class")
_PERFECT = IOParameters(is_perfect=True)
_BASES = {"PresetIOParameters": presets._PERIPHERY, "PresetUpdateParameters": presets._TRAINS}
_MAPPING = {
    "digital_bias": True,
    "weight_scaling_omega": 0.0,
    "weight_scaling_columnwise": False,
    "weight_scaling_lr_compensation": False,
    "learn_out_scaling": False,
    "out_scaling_columnwise": False,
    "max_input_size": 512,
    "max_output_size": 512,
}
_COMPENSATIONS = {
    "GlobalDriftCompensation": "GLOBAL",
    "PerColumnDriftCompensation": "PER_COLUMN",
}
_TYPES = {"FLOAT": "float32", "DOUBLE": "float64"}
_MODIFIERS = {"PCMNOISE": "NOISEMODEL", "COPY": "DROPCONNECT"}
_WHOLE = ("mapping", "runtime", "pre_post", "tile_class", "tile_array_class")  # of all
_HARDWARE = ("noise_model", "drift_compensation", "modifier", "clip", "remap")
_TRAINED = ("forward", "backward", "update", "device")


def from_dict(tree: Mapping[str, Any], *, ignore: Iterable[str] = ()) -> AnalogSettings:
    """Read a configuration of aihwkit from plain dictionaries.

    Parameters
    ----------
    tree : mapping
        Settings by aihwkit's names. Parts are dictionaries; ``"class"`` names their class where
        it does not follow from their place, as of ``device`` or ``noise_model``. Settings that
        are missing have their defaults, or those of the preset that is named as the class.
        Members of enums are given by name or value.
    ignore : iterable of str
        Paths of settings to leave out, as the error lists them: ``"update.d_sparsity"``.

    Returns
    -------
    AnalogSettings
        For `rpukit.torch.convert` and the layers of `rpukit.torch.nn`; its method `array` makes a
        `rpukit.TileArray`.

    Raises
    ------
    ParameterError
        Lists all settings that are unknown, or that have no counterpart and a value at which
        they change results. The page on compatibility tells the counterparts.

    Notes
    -----
    A few lines make such dictionaries of a configuration, see ``docs/torch_compatibility.md``.

    Source of the names: Rasch et al., AICAS 2021, version 1.2.0.

    Examples
    --------
    >>> import rpukit as rk
    >>> device = {"class": "SoftBoundsDevice", "dw_min": 0.002}
    >>> tree = {"class": "SingleRPUConfig", "device": device, "forward": {"out_noise": 0.01}}
    >>> settings = rk.presets.from_dict(tree | {"mapping": {"digital_bias": False}})
    >>> settings.cell.dw_min, settings.forward.out_noise, settings.analog_bias
    (0.002, 0.01, True)
    >>> rk.presets.from_dict({"class": "EcRamPreset"}).cell == rk.presets.device("EcRam")
    True
    """
    if not isinstance(tree, Mapping):
        raise ParameterError(f"tree: got {shown(tree)}, need a dictionary of settings")
    reader = _Reader(ignore)
    settings = reader.configuration(dict(tree))
    reader.finish()
    return settings


class _Reader:
    """Reads parts of a configuration, and collects what it cannot take."""

    def __init__(self, ignore: Iterable[str]) -> None:
        self.problems: list[str] = []
        self.ignored = set(ignore)
        self.pulses_counted = False

    def refuse(self, path: str, why: str) -> None:
        """Note a problem, unless the setting at this path is to be left out."""
        if path not in self.ignored:
            self.problems.append(f"{path}: {why}")

    def finish(self) -> None:
        """Raise an error that lists all problems."""
        if self.problems:
            found = "\n  ".join(self.problems)
            raise ParameterError(
                f"tree: {len(self.problems)} settings cannot be taken over; mend them, or give "
                f"their paths as ignore= to leave them out:\n  {found}"
            )

    # ---- whole configurations -----------------------------------------------------------------

    def configuration(self, tree: dict[str, Any]) -> AnalogSettings:
        name = _class_of(tree) or "SingleRPUConfig"
        base = None
        if name.removesuffix("Preset") in presets.config_names():
            base, inference = presets.config(name), False
        elif name in CONFIGS:
            inference = CONFIGS[name]
        else:
            self.refuse("class", f"{name!r} is no class of configurations: {', '.join(CONFIGS)}")
            self.finish()
        known = {*_WHOLE, *_TRAINED, *(_HARDWARE if inference else ())}
        for key in tree.keys() - known - set(_CLASS):
            self.refuse(key, f"unknown{did_you_mean(key, known)}")
        options = self._mapping(tree.get("mapping") or {})
        options["dtype"] = self._runtime(tree.get("runtime") or {})
        if inference:
            return AnalogSettings(**self._hardware(tree), **options)
        if self._input_range(tree):
            self.refuse("pre_post.input_range", "only inference tiles have input ranges")
        kept = {} if base is None else {n: getattr(base, n) for n in ("forward", "update")}
        kept |= {} if base is None else {"backward": base.backward, "cell": base.cell}
        for key in ("forward", "backward", "update"):
            if key in tree:
                kept[key] = self.part(tree[key], key, kept.get(key))
        if "device" in tree:
            kept["cell"] = self.part(tree["device"], "device", None)
        if name == "FloatingPointRPUConfig":
            exact = UpdateParameters(pulse_type=PulseType.NONE)
            kept |= {"forward": _PERFECT, "backward": _PERFECT, "update": exact}
        start: Any = Ideal() if name.startswith("Floating") else CLASSES["ConstantStepDevice"].make
        kept.setdefault("cell", start if isinstance(start, Ideal) else start())
        counts = self.pulses_counted
        return AnalogSettings(**kept, **options, count_pulses=counts)

    def _hardware(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Read what a configuration for inference has."""
        parts: dict[str, Any] = {}
        noise = dict(tree.get("noise_model") or {})
        converter = noise.pop("g_converter", None)
        parts["noise"] = self.part(noise, "noise_model", None)
        if converter is not None:
            parts["converter"] = self.part(converter, "noise_model.g_converter", None)
        for key, name in (("modifier", "modifier"), ("clip", "weight_clip")):
            if key in tree:
                parts[name] = self.part(tree[key], key, None)
        if "remap" in tree:
            parts["weight_remap"] = self.part(tree["remap"], "remap", None)
        ranges = self._input_range(tree)
        if ranges:
            parts["input_range"] = self._range(ranges)
        parts["compensation"] = self._compensation(tree)
        forward = self.part(tree.get("forward") or {}, "forward", None)
        backward = self.part(tree.get("backward") or {"is_perfect": True}, "backward", _PERFECT)
        if self._enum(PulseType, (tree.get("update") or {}).get("pulse_type", "NONE")) not in (
            *(PulseType.NONE, PulseType.NONE_WITH_DEVICE),
        ):
            self.refuse("update.pulse_type", "inference tiles are updated exactly; need NONE")
        device = tree.get("device") or {}
        if (_class_of(device) or "IdealDevice") != "IdealDevice":
            self.refuse("device", "inference tiles have no device; need an IdealDevice")
        return {"cell": InferenceCell(**parts), "forward": forward, "backward": backward}

    def _input_range(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of an input range, none where it is not enabled."""
        given = tree.get("pre_post") or {}
        for key in given.keys() - {"input_range"} - set(_CLASS):
            self.refuse(f"pre_post.{key}", "unknown")
        ranges = dict(given.get("input_range") or {})
        return ranges if ranges.get("enable", False) else {}

    def _compensation(self, tree: dict[str, Any]) -> str:
        given = tree.get("drift_compensation", {"class": "GlobalDriftCompensation"})
        if given is None:
            return "NONE"
        name = given if isinstance(given, str) else _class_of(given)
        if name not in _COMPENSATIONS:
            self.refuse("drift_compensation", f"{name!r}: need {' or '.join(_COMPENSATIONS)}")
        return _COMPENSATIONS.get(str(name), "NONE")

    def _range(self, tree: dict[str, Any]) -> Any:
        path = "pre_post.input_range"
        if not tree.get("learn_input_range", True):  # these act on learned ranges only
            free = ("gradient_scale", "gradient_relative", "manage_output_clipping")
            tree = {key: value for key, value in tree.items() if key not in free}
        elif "gradient_relative" not in tree:
            tree = {**tree, "gradient_relative": True}  # aihwkit's default
        return self.part({"learn_input_range": True, **tree}, path, None)

    def _mapping(self, tree: Tree) -> dict[str, Any]:
        for key in tree.keys() - _MAPPING.keys() - set(_CLASS):
            self.refuse(f"mapping.{key}", f"unknown{did_you_mean(key, _MAPPING)}")
        get = {**_MAPPING, **tree}
        size = [int(get[f"max_{side}_size"]) for side in ("output", "input")]
        options: dict[str, Any] = {"analog_bias": not get["digital_bias"]}
        options["tile_shape"] = tuple(n or 1 << 20 for n in size) if any(size) else None
        omega, learned = get["weight_scaling_omega"], get["learn_out_scaling"]
        if omega or learned:
            columns = (omega and get["weight_scaling_columnwise"]) or (
                learned and get["out_scaling_columnwise"]
            )
            options["output_scale"] = OutputScale(
                per="column" if columns else "tensor",
                omega=omega,
                learned=bool(learned),
                compensates_rate=bool(get["weight_scaling_lr_compensation"]),
            )
        return options

    def _runtime(self, tree: Tree) -> str:
        known = {"data_type", "on_the_fly_bindings", "offload_input", "offload_gradient"}
        for key in tree.keys() - known - set(_CLASS):
            self.refuse(f"runtime.{key}", "unknown")
        name = _plain(tree.get("data_type", "FLOAT")).upper()
        if name not in _TYPES:
            self.refuse("runtime.data_type", f"got {name}, need FLOAT or DOUBLE")
        return _TYPES.get(name, "float32")

    # ---- parts --------------------------------------------------------------------------------

    def part(self, tree: Any, path: str, base: Any) -> Any:
        """Make one of our objects of a dictionary, changing `base` or the defaults."""
        if not isinstance(tree, Mapping):
            self.refuse(path, f"got {shown(tree)}, need a dictionary")
            return base
        name = _class_of(tree) or SLOTS.get(path.rsplit(".", 1)[-1], "")
        base, name = self._preset(name, base)
        if name not in CLASSES:
            self.refuse(f"{path}.class", f"{name!r} is not known{did_you_mean(name, CLASSES)}")
            return base
        entry = CLASSES[name]
        changes: dict[str, Any] = {}
        base = entry.make() if base is None and name not in _LATER else base
        for key, value in tree.items():
            if key in _CLASS or f"{path}.{key}" in self.ignored:
                continue
            at = f"{path}.{key}"
            if key == "count_pulses":
                self.pulses_counted |= bool(value)
            if key in entry.fixed:
                if entry.fixed[key] is not ANY and not _same(value, entry.fixed[key]):
                    need = entry.fixed[key]
                    self.refuse(at, f"got {value!r}; there is no counterpart, need {need!r}")
                continue
            ours = entry.renamed.get(key, key)
            special = _SPECIAL.get((name, key))
            if special is not None:
                changes |= special(value)
            elif ours not in {f.name for f in fields(entry.make) if f.init}:
                known = {*entry.fixed, *entry.renamed, *(f.name for f in fields(entry.make))}
                self.refuse(at, f"unknown{did_you_mean(key, known)}")
            else:
                changes[ours] = self._value(value, at, entry.make, ours, base)
        return replace(base, **changes) if base is not None else entry.make(**changes)

    def _preset(self, name: str, base: Any) -> tuple[Any, str]:
        """Resolve the name of a preset to what it starts from and the class that it is."""
        if name in _BASES:
            return _BASES[name] if base is None else base, name.removeprefix("Preset")
        if name == "PCMPresetUnitCell":
            return presets.config("PCM").cell, "OneSidedUnitCell"
        if name.removesuffix("PresetDevice") in presets.device_names():
            cell = presets.device(name)
            found = next(n for n, e in CLASSES.items() if e.make is type(cell))
            return cell, found
        return base, name

    def _value(self, value: Any, path: str, make: Any, ours: str, base: Any) -> Any:
        """Make the value of one of our fields."""
        if ours == "drift":
            drift = self.part(value, path, None)
            return drift if drift and (drift.nu or drift.nu_k or drift.w_noise_std) else None
        if ours == "devices":
            return tuple(self.part(v, f"{path}.{k}", None) for k, v in enumerate(value))
        if ours == "device":
            first = value[0] if isinstance(value, (list, tuple)) else value
            return self.part(first, path, None)
        if isinstance(value, Mapping):
            return self.part(value, path, None)
        now = getattr(base, ours) if base is not None else None
        if isinstance(now, Enum):
            return self._enum(type(now), value, path)
        return tuple(value) if isinstance(value, (list, tuple)) else value

    def _enum(self, kind: type[Enum], value: Any, path: str = "") -> Any:
        name = _plain(value).replace("_", "").upper()
        for member in kind:
            if member.name.replace("_", "") == _MODIFIERS.get(name, name):
                return member
        self.refuse(path, f"got {value!r}, need one of {', '.join(m.name for m in kind)}")
        return next(iter(kind))


_LATER = ("OneSidedUnitCell", "DifferenceUnitCell")  # classes without defaults for all fields
_SPECIAL: dict[tuple[str, str], Any] = {
    ("WeightClipParameter", "fixed_value"): lambda v: {"fixed_value": max(v, 0.0)},
    ("StateIndependentNoiseModel", "prog_coeff"): lambda v: {"prog_std": v[0]},
    ("CustomDriftPCMLikeNoiseModel", "custom_drift_model"): lambda v: {
        "g_nodes": tuple(v["g_lst"]),
        "nu_mean": tuple(v["nu_mean_lst"]),
        "nu_std": tuple(v["nu_std_lst"]),
    },
}


def _class_of(tree: Any) -> str | None:
    if isinstance(tree, str):
        return tree
    found = next((tree[key] for key in _CLASS if key in tree), None)
    return None if found is None else str(found)


def _plain(value: Any) -> str:
    """Return the name of a member of an enum, or the text that is given."""
    return str(getattr(value, "name", value))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    return bool(_plain(a).upper() == _plain(b).upper()) if isinstance(b, str) else bool(a == b)
