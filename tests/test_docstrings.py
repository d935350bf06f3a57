"""Docstrings of all public names: numpydoc's rules, and examples that run."""

import doctest
import enum
import importlib
import inspect
import pkgutil

import pytest
from numpydoc.validate import validate

import rpukit as rk

# Layout and completeness. Left out: See Also and extended summaries, which not every name needs;
# descriptions of parameters whose type line says it all; capitals and full stops.
CHECKS = {
    *("GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR10", "RT01"),
}
SUBMODULES = [name for name in rk.__all__ if inspect.ismodule(getattr(rk, name))]


def members(name: str) -> list[str]:
    """List the public methods and properties that a class defines itself."""
    module, _, attribute = name.rpartition(".")
    owner = getattr(importlib.import_module(module), attribute)
    if not inspect.isclass(owner):
        return []
    kinds = (property, classmethod, staticmethod)
    inherited = {member for base in owner.__mro__[1:] for member in vars(base)}
    return [
        f"{name}.{member}"
        for member, value in vars(owner).items()
        if not member.startswith("_")
        and member not in inherited  # an override keeps the promise of its base class
        and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def public_names() -> list[str]:
    """List the dotted names of everything public, where it is defined."""
    found = set()
    for module in [rk, *(getattr(rk, name) for name in SUBMODULES)]:
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.ismodule(value) and hasattr(value, "__module__"):
                assert value.__module__.startswith("rpukit."), f"{name} is not ours"
                found.add(f"{value.__module__}.{value.__qualname__}")
    return sorted(found | {member for name in found for member in members(name)})


PUBLIC = public_names()


def find(name: str):
    """Return a public name's module and value."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise LookupError(name)


def test_public_modules_say_what_is_public():
    without = [name for name in SUBMODULES if not hasattr(getattr(rk, name), "__all__")]
    assert not without, f"no __all__ in {without}"


def checks(value) -> set[str]:
    """Choose the checks of a name: classes have some freedom in how they list what they hold."""
    if not inspect.isclass(value):
        return CHECKS
    free = {"PR03"}  # keyword-only configurations group their parameters by subject
    if issubclass(value, enum.Enum) or "\nAttributes\n" in (inspect.getdoc(value) or ""):
        free.add("PR01")  # results and errors list what they hold, not how they are made
    return CHECKS - free


@pytest.mark.parametrize("name", PUBLIC)
def test_numpydoc(name):
    wanted = checks(find(name))
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"] if code in wanted]
    assert not errors, f"{name}: " + "; ".join(errors)


def needs_example(name: str) -> bool:
    """Tell whether a name must show an example: functions and classes of `rpukit` itself."""
    value = find(name)
    if inspect.isclass(value):
        return not issubclass(value, Exception | enum.Enum) and value.__name__ in rk.__all__
    return inspect.isfunction(value) and value.__name__ in rk.__all__


@pytest.mark.parametrize("name", [name for name in PUBLIC if needs_example(name)])
def test_has_an_example(name):
    assert ">>>" in inspect.getdoc(find(name)), f"{name}: no Examples section"


MODULES = ["rpukit", *(m.name for m in pkgutil.walk_packages(rk.__path__, "rpukit."))]
NO_SCRIPTS = [name for name in MODULES if not name.endswith("__main__")]


def module_of(name: str):
    """Import a module; skip, with the reason, where it needs PyTorch and that is missing."""
    try:
        return importlib.import_module(name)
    except rk.errors.TorchError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NO_SCRIPTS)
def test_module_says_what_it_is(name):
    assert module_of(name).__doc__, f"{name}: no docstring"


@pytest.mark.parametrize("name", NO_SCRIPTS)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(module_of(name), optionflags=flags)
    assert failed == 0, f"{name}: see the output above"
