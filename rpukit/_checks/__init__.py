"""Checks of parameters and arguments: one mechanism for fields, functions and methods."""

from rpukit._checks.arguments import takes
from rpukit._checks.arrays import float32_array, integers, labelled, real_array
from rpukit._checks.fields import Checked
from rpukit._checks.kinds import InstanceOf, Kind, Many, Maybe, OneOf, Real, Whole
from rpukit._checks.memory import need_memory, need_nodes
from rpukit._checks.values import (
    LARGEST,
    MOST,
    TINY,
    any_type,
    check_shape,
    did_you_mean,
    flag,
    held,
    instance,
    integer,
    is_number,
    member,
    number,
    one_of,
    plain,
    real_type,
    shown,
    text,
)

__all__ = [
    "LARGEST",
    "MOST",
    "TINY",
    "Checked",
    "InstanceOf",
    "Kind",
    "Many",
    "Maybe",
    "OneOf",
    "Real",
    "Whole",
    "any_type",
    "check_shape",
    "did_you_mean",
    "flag",
    "float32_array",
    "held",
    "instance",
    "integer",
    "integers",
    "is_number",
    "labelled",
    "member",
    "need_memory",
    "need_nodes",
    "number",
    "one_of",
    "plain",
    "real_array",
    "real_type",
    "shown",
    "takes",
    "text",
]
