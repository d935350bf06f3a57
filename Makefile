# Every target does its own set-up: a virtual environment in .venv, pinned by constraints.txt. The
# stamp files make the second time quick. Needs Python 3.11 to 3.13; `test` also needs g++. No GPU.
#
#   make demo      train a network of analog tiles on digits; figures go to demo_out/
#   make test      tests that need no GPU, the CUDA kernels run by g++ among them; T=tests/gemm: one topic
#   make targets   tests of generated C under QEMU; with cross compilers, installed by apt-get if root
#   make torch     tests of the layers for PyTorch, with its build for the CPU
#   make lint types docs notebooks bench-check check versions wheel clean

PYTHON ?= python3
CXX ?= g++
DEMO_ARGS ?=
# Two processes pay from about a minute of tests on; Numba compiles in each of them.
PYTEST_ARGS ?= -n 2 --dist worksteal
T ?= tests

VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is imported when it is: a tenth of what pip installs.
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
FROZEN := setup.cfg pyproject.toml constraints.txt
NOTEBOOKS ?= $(wildcard notebooks/*.py docs/tutorials/*.py)

.PHONY: help demo test targets torch lint format types docs notebooks bench-check check versions wheel clean
.SUFFIXES:
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -8

demo: $(VENV)/.stamp-demo
	$(BIN)/python -m rpukit demo $(DEMO_ARGS)

test: $(VENV)/.stamp-test
	@command -v $(CXX) >/dev/null || { echo "make test: no C++ compiler '$(CXX)': install g++ or set CXX"; exit 1; }
	CXX=$(CXX) $(BIN)/python -m pytest $(PYTEST_ARGS) $(T)

targets: $(VENV)/.stamp-test
	bash tools/install_cross_tools.sh
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m qemu tests/tiled

# Layers, the products for PyTorch, and the examples in docstrings and pages that need it.
torch: $(VENV)/.stamp-torch
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/torch tests/gemm/test_torch.py tests/test_docstrings.py \
	    tests/test_doc_blocks.py -k "torch or gemm or aihwkit or models"

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.stamp-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.stamp-dev
	$(BIN)/mypy

docs: $(VENV)/.stamp-docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html

# The .py of each pair is the source; the .ipynb must hold what its run gives. WRITE=--write writes it,
# EVERY="--every 2" runs half of them, the others tomorrow.
notebooks: $(VENV)/.stamp-dev $(VENV)/.stamp-torch
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tools/check_notebooks.py $(WRITE) $(EVERY) $(NOTEBOOKS)

bench-check: $(VENV)/.stamp-dev
	cd asv_benchmarks && ../$(BIN)/python -m asv check -E existing:../$(BIN)/python

check: $(VENV)/.stamp-test
	$(BIN)/python -m rpukit check

# With the oldest and the newest NumPy, SciPy, Numba and Python that are here.
versions: $(VENV)/.stamp-venv
	$(BIN)/python tools/check_versions.py

wheel: $(VENV)/.stamp-dev
	rm -rf build dist && mkdir dist
	$(BIN)/python -m build --no-isolation --outdir dist . >dist/log 2>&1 || { cat dist/log; exit 1; }
	$(BIN)/python tools/check_wheel.py dist

clean:
	rm -rf build dist *.egg-info demo_out docs/_build docs/generated docs/notebooks .pytest_cache .mypy_cache .ruff_cache
	rm -rf asv_benchmarks/env asv_benchmarks/results asv_benchmarks/html
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(VENV)/.stamp-venv: constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v < (3, 14))' || \
	    { echo "make: $$($(PYTHON) --version) found, need Python 3.11 to 3.13: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip setuptools wheel
	@touch $@

# The build for the CPU: its version, 2.x+cpu, comes before 2.x, which brings gigabytes of CUDA.
CPU_BUILDS := https://download.pytorch.org/whl/cpu/torch/
$(VENV)/.stamp-torch: $(VENV)/.stamp-test
	$(PIP) --retries 1 --find-links $(CPU_BUILDS) torch
	@touch $@

# .stamp-demo, .stamp-test, .stamp-dev, .stamp-docs: the extra of that name, over the checkout itself; others are parts of it
PARTS_test := demo
PARTS_dev := test demo
$(VENV)/.stamp-%: $(VENV)/.stamp-venv $(FROZEN)
	PYTHONWARNINGS=ignore $(PIP) --no-build-isolation -e '.[$*]'
	@touch $@ $(PARTS_$*:%=$(VENV)/.stamp-%)
