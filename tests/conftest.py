"""One thread per test process: two processes share two cores, and results do not depend on the number of cores."""

import os
import sys
from pathlib import Path

import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent / "agent"))  # golden.py is a script and a module
