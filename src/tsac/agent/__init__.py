"""The method: the algorithm, its networks, its targets and its replay buffer."""
