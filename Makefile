# make demo and make test are all the set-up there is; both create the environment in .venv if it is missing.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
DEMO := runs/demo

.PHONY: help demo test lint type format bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Made anew only when the requirements changed. torch comes first and pinned: a CPU-only machine is not to
# download the CUDA build that another package would ask for.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "Creating the environment in .venv (a minute or two, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[tasks,baselines,studies,extra,export,video,dev]"
	@touch $@

demo: $(INSTALLED) ## train T-SAC on HalfCheetah for a few minutes and draw its learning curve
	@echo "Training T-SAC on HalfCheetah-v4; the returns below are those of the deterministic policy"
	@rm -rf $(DEMO)
	@$(BIN)/python -W ignore examples/learning_curve.py --task HalfCheetah-v4 --seed 1 --steps 25000 --episodes 3 \
		--every 2500 --threads 2 --folder $(DEMO)
	@$(BIN)/python examples/plot_curves.py $(DEMO) --output $(DEMO)/curve.png
	@echo "The curve is in $(DEMO)/curve.png, its numbers in $(DEMO)/evaluations.csv."
	@echo "Next: $(BIN)/python examples/learning_curve.py --help, or the ten lines of Python in README.md."

test: $(INSTALLED) ## run the tests
	@$(BIN)/python -m pytest

lint: $(INSTALLED) ## check style
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

type: $(INSTALLED) ## check types, strictly where the method is
	@$(BIN)/mypy --strict src/tsac

format: $(INSTALLED) ## put the code in shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(INSTALLED) ## time the parts of an update
	@$(BIN)/python -W ignore benchmarks/update.py

clean: ## remove the environment and all runs
	rm -rf .venv runs
