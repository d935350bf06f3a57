"""Settings of the documentation: `make docs` writes docs/_build/html."""

import rpukit

project = "rpukit"
author = "The rpukit developers"
project_copyright = author
version = release = rpukit.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_context = {"public": rpukit.__all__}  # these have pages of their own
autodoc_typehints = "none"  # types are said in the docstrings, with shapes and units
numpydoc_show_class_members = False  # the class template lists them

html_theme = "pydata_sphinx_theme"
html_title = f"rpukit {version}"
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"]}
