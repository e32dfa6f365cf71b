# The four targets of every day: demo, test, check, test-system. `make help` lists all.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= sim
AGENT ?=
MODELS := .cache/models
SWEEP ?= $(if $(filter smollm2%,$(MODEL)),demo_smollm2,demo)
# A folder holds one sweep: another model or agent is another folder.
RESULTS ?= results/$(SWEEP:demo_smollm2=demo)$(if $(filter-out sim,$(MODEL)),_$(MODEL))$(AGENT:%=_%)
PYTEST_WORKERS ?= 2

.PHONY: help setup dev pruner demo test check format test-system test-faults test-pruner test-gpu serve constraints clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.base ## Make .venv with what the pipeline needs

dev: $(VENV)/.dev ## Make .venv with what tests and checks need too

pruner: $(VENV)/.pruner ## Add the extra `pruner` to .venv (CPU=1: PyTorch's CPU build, found as for `serve`)

demo: $(VENV)/.base $(if $(filter smollm2%,$(MODEL)),$(MODELS)/smollm2/config.json) ## Run the main job on the embedded default (MODEL=smollm2: on real weights; AGENT=trae; SWEEP=two_agents: two agents x six arms)
	@$(BIN)/python -m pipeline.launch +sweep=$(SWEEP) model=$(MODEL) $(AGENT:%=agent=%) results=$(RESULTS)

test: $(VENV)/.dev ## Run the default test suite (no Slurm, Apptainer, vLLM or GPU)
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -q -m "not slurm and not apptainer and not vllm and not gpu"

check: $(VENV)/.dev ## Formatting, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-system: $(VENV)/.dev ## Tests on the real Slurm, Apptainer and vLLM that are here (REQUIRE=slurm,apptainer,vllm)
	REQUIRE=$(REQUIRE) $(BIN)/python -m pytest -q tests/system -m "slurm or apptainer or vllm"

test-faults: $(VENV)/.dev ## Kill, cancel, requeue, fill the disk: workers here, and jobs where Slurm is (REQUIRE=slurm)
	REQUIRE=$(REQUIRE) $(BIN)/python -m pytest -q tests/worker/test_faults.py tests/worker/test_slurm_end.py tests/system/test_slurm_faults.py

test-pruner: $(VENV)/.pruner ## Tests that need the extra `pruner` (PyTorch); REQUIRE=torch: its absence fails them
	REQUIRE=$(REQUIRE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) -q $(wildcard tests/linehead tests/pruners tests/serving/test_splice_keys.py)

test-gpu: $(VENV)/.dev ## Tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu

serve: .venv-vllm/.done ## Make .venv-vllm, vLLM's own environment (CPU=1: the CPU build)

$(MODELS)/smollm2/config.json:
	@$(MAKE) --no-print-directory serve CPU=1
	containers/make_test_models.sh .venv-vllm $(MODELS) smollm2

.venv-vllm/.done: containers/vllm-requirements.txt containers/make_vllm_venv.sh
	PYTHON=$(PYTHON) CPU=$(CPU) containers/make_vllm_venv.sh .venv-vllm
	@touch $@

# uv installs the same wheels as pip in a tenth of the time; it lives in the venv it fills.
$(BIN)/uv:
	@test -n "$(PYTHON)" || { echo "planprune needs Python 3.11 or newer: none found; set PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "setting up $(VENV) ..."
	@$(BIN)/uv pip install --quiet -p $(VENV) --compile-bytecode -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "setting up $(VENV) with the development tools ..."
	@$(BIN)/uv pip install --quiet -p $(VENV) --compile-bytecode -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.base

$(VENV)/.pruner: pyproject.toml constraints.txt containers/pruner-cpu-constraints.txt | $(VENV)/.dev
	@echo "adding the extra pruner to $(VENV) ..."
	@$(BIN)/uv pip install --quiet -p $(VENV) --compile-bytecode -c constraints.txt \
	  $(if $(CPU),-c containers/pruner-cpu-constraints.txt) $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) \
	  -e '.[dev,pruner]'
	@touch $@

constraints: $(VENV)/.dev ## Pin what is installed now
	@{ echo "# Versions that were tested together. Made by 'make constraints'."; \
	   $(BIN)/uv pip freeze -p $(VENV) --exclude-editable | grep -v '://' | \
	   sed -E 's/^soupsieve==.*/soupsieve==2.10; python_full_version < "3.11.5"\n&; python_full_version >= "3.11.5"/' ; \
	 } > constraints.txt # newer ones want 3.11.5, and sites have 3.11.2 and 3.11.3

clean: ## Remove environments and caches (results stay)
	rm -rf $(VENV) .venv-vllm .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
