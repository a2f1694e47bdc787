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

# On a slow machine the time is over before the last step: exit code 75, and `tsac resume` would go on.
demo: $(INSTALLED) ## train T-SAC on Hopper for eight minutes at most, draw its learning curve, film it
	@rm -rf $(DEMO)
	@echo "Teaching Hopper-v4 to hop: eight minutes at most, on two cores"
	@$(BIN)/tsac train laptop --task Hopper-v4 --seed 1 --steps 30000 --threads 2 --evaluate-every 2500 \
		--final-episodes 16 --minutes 8 --folder $(DEMO) || test $$? -eq 75
	@$(BIN)/tsac show $(DEMO) --curve $(DEMO)/curve.png
	@$(BIN)/tsac eval $(DEMO) --best --episodes 16 --video $(DEMO)/clip.mp4 || echo "Go on without a film."
	@echo
	@echo "What to try next:"
	@echo "  $(BIN)/tsac train laptop --task HalfCheetah-v4     100,000 steps"
	@echo "  $(BIN)/tsac export $(DEMO) policy.onnx             the policy for another machine"
	@echo "  $(BIN)/tsac tasks; $(BIN)/tsac algorithms          what else there is"
	@echo "  the lines of Python in README.md"

test: $(INSTALLED) ## run the tests
	@$(BIN)/python -m pytest

lint: $(INSTALLED) ## check style
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

type: $(INSTALLED) ## check types, strictly where the method is
	@$(BIN)/mypy --strict src/tsac

format: $(INSTALLED) ## put the code in shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(INSTALLED) ## time everything, side by side with other libraries
	@$(BIN)/python -c "import sbx" 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt ".[bench]"
	@$(BIN)/python -W ignore benchmarks/bench.py --json runs/bench.json

clean: ## remove the environment and all runs
	rm -rf .venv runs
