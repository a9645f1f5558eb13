PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
PROMPT ?= Why is the sky blue? Answer in two sentences.

.PHONY: run test lint format bench peer clean

# Installs puna in a virtual environment of this checkout; $(1): extras.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=24.1"
	@echo "building and installing puna$(1) ..."
	@$(BIN)/python -m pip install --quiet --editable ".$(1)"
endef

run:                ## build, install, get the default model, answer PROMPT
	$(call install,)
	@$(BIN)/puna run smollm2:135m "$(PROMPT)" </dev/null

test:               ## build, install with the test dependencies, run all tests
	$(call install,[test])
	$(BIN)/python -m pytest $(TESTS)

lint:               ## formatting, lint and types of Python and C++
	$(call install,[test$(comma)lint])
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files 'native/*.h' 'native/*.cpp' 'native/*.inl')
	$(BIN)/mypy

format:
	$(call install,[lint])
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cpp' 'native/*.inl')

bench:              ## side by side with llama.cpp: the table of the README; ARGS="--files Q4_0 --rows prefill"
	$(call install,[test])
	$(BIN)/python -m benchmarks $(ARGS)

peer:               ## llama.cpp, compiled for this machine, for `make bench`; needs cmake
	$(call install,[test])
	$(BIN)/python -m benchmarks.peer

clean:
	rm -rf build $(VENV)
