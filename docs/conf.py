"""Settings of the documentation: `make docs` writes docs/_build/html."""

import enum
import inspect
import shutil
import sys
from pathlib import Path
from types import ModuleType

import rpukit

project = "rpukit"
author = "The rpukit developers"
project_copyright = author
version = release = rpukit.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
# reStructuredText first: autosummary writes its pages with the first suffix
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
templates_path = ["_templates"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` runs them and compares; here they are shown
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"

# Notebooks live beside the code; Sphinx reads sources below docs/ only.
HERE = Path(__file__).parent
(HERE / "notebooks").mkdir(exist_ok=True)
for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
    shutil.copy2(notebook, HERE / "notebooks")

autosummary_generate = True


def public_modules(owner: ModuleType, place: str) -> dict[str, ModuleType]:
    """Modules below one, by the names under which users reach them."""
    found = {}
    for name in owner.__all__:
        if inspect.ismodule(module := getattr(owner, name)):
            found[f"{place}.{name}"] = module
            sys.modules.setdefault(f"{place}.{name}", module)  # rk.presets is defined elsewhere
            found |= public_modules(module, f"{place}.{name}")
    return found


_MODULES = public_modules(rpukit, "rpukit")
_EXPORTS = {name: list(module.__all__) for name, module in _MODULES.items()}
_CLASSES = {
    f"{place}.{name}": value
    for place, module in {"rpukit": rpukit, **_MODULES}.items()
    for name in module.__all__
    if inspect.isclass(value := getattr(module, name))
}
autosummary_context = {
    # names that have a page below their module, and names that have one as rk.<name>
    "exports": {m: [n for n in all_ if n not in rpukit.__all__] for m, all_ in _EXPORTS.items()},
    "shared": {m: [n for n in all_ if n in rpukit.__all__] for m, all_ in _EXPORTS.items()},
    "enums": [name for name, value in _CLASSES.items() if issubclass(value, enum.Enum)],
    # inherited members are shown, but for those of classes that are not ours
    "foreign_bases": [
        *("object", "str", "int", "Enum", "BaseException"),
        *("BaseEstimator", "ClassifierMixin", "RegressorMixin"),
    ],
    "foreign_members": [
        "get_metadata_routing",
        *(f"set_{call}_request" for call in ("fit", "partial_fit", "predict", "score", "sample")),
    ],
}
autodoc_typehints = "none"  # types are said in the docstrings, with shapes and units
numpydoc_show_class_members = False  # the class template lists them

html_theme = "pydata_sphinx_theme"
html_title = f"rpukit {version}"
html_sidebars = {"**": ["sidebar-pages"]}  # all pages on the left, by their captions
html_theme_options = {
    "navbar_center": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
}
