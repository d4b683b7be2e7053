# Every target is phony: several share their name with a folder.
.PHONY: help reproduce test lint format bench figures visual docs core full clean
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process per core; each process keeps its numerical libraries on one thread.
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
# An index with another build of torch, for example a CPU-only one (README, "Install").
TORCH_INDEX ?=
TASK ?= tworoom

help:
	@echo "make reproduce   set up, compute every claim, train both toy sweeps, write results/report.html"
	@echo "                 (QUICK=1: exact claims and a small toy in under a minute, results/quick/)"
	@echo "make test        set up, then lint, types and the whole test suite"
	@echo "make visual      one visual task: record, train, plan, diagnose, report (TASK=tworoom; QUICK=1 in small)"
	@echo "make lint        format, lint and type checks"
	@echo "make bench       side-by-side timings"
	@echo "make figures     redraw every figure from rows on disk"
	@echo "make docs        build the documentation into site/"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "anisowm needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

# A stamp is written last, so that an installation that was interrupted is done again.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --index-url $(TORCH_INDEX) torch)
	$(BIN)/python -m pip install -e .
	touch $@

$(VENV)/.full: pyproject.toml | $(BIN)/python
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --index-url $(TORCH_INDEX) torch torchvision)
	$(BIN)/python -m pip install -e '.[visual,lewm,slurm,dev]'
	touch $@ $(VENV)/.core

core: $(VENV)/.core
full: $(VENV)/.full

reproduce: core
	$(BIN)/python -m figures reproduce $(if $(filter-out 0,$(QUICK)),--quick)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --nbmake --durations 15

lint: full
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: full
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

figures: core
	$(BIN)/python -m figures all

# One task: record it, train LeWM (κ = 1) and AnisoWM (κ = 2) side by side, plan with both on the same held-out pairs,
# diagnose both, then tables and pictures in results/visual/TASK/report.html. Killed, it goes on where it was.
# QUICK=1 does every stage in small and writes to results/quick/.
QUICK_VISUAL = preset=quick protocol=quick out=results/quick/visual
visual: export MUJOCO_GL ?= egl
visual: full
	$(BIN)/python -m visual study 'tasks=[$(TASK)]' 'kappas=[1,2]' published=null $(if $(filter-out 0,$(QUICK)),$(QUICK_VISUAL))
	$(BIN)/python -m figures visual $(TASK) --results results$(if $(filter-out 0,$(QUICK)),/quick)

bench: full
	$(BIN)/python -m benchmarks.bench_theory
	$(BIN)/python -m benchmarks.bench_toy2d
	$(BIN)/python -m benchmarks.bench_regularizer

docs: full
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
