"""One thread per test process: two processes share two cores, and results do not depend on the number of cores."""

import os
import sys
from pathlib import Path

import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)
for folder in ("agent", "tasks", "runs", "baselines"):  # golden.py and box_pushing_oracle.py are scripts and modules
    sys.path.insert(0, str(Path(__file__).parent / folder))
