"""Docstrings of the names that need PyTorch: numpydoc's rules and examples, as everywhere."""

import inspect

import pytest
from numpydoc.validate import validate

from tests.test_docstrings import checks, find, members

pytest.importorskip("torch", reason="PyTorch, an extra of the library, is not installed")

import rpukit.torch
from rpukit.torch import nn, optim


def names() -> list[str]:
    """List the dotted names, where they are defined."""
    values = [getattr(rpukit.torch, name) for name in dir(rpukit.torch)]
    values += [getattr(module, name) for module in (nn, optim) for name in module.__all__]
    found = {f"{v.__module__}.{v.__qualname__}" for v in values if not inspect.ismodule(v)}
    return sorted(found | {member for name in found for member in members(name)})


@pytest.mark.parametrize("name", names())
def test_numpydoc(name):
    wanted = checks(find(name))
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code in wanted]
    assert not errors, f"{name}: " + "; ".join(errors)
    if not inspect.isclass(find(name)) and "." in name.removeprefix("rpukit.torch.").split(".")[0]:
        assert ">>>" in inspect.getdoc(find(name))


def test_names_are_listed():
    assert {"nn", "optim", "convert", "det_gemm"} <= set(dir(rpukit.torch))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rpukit.torch.no_such_name
