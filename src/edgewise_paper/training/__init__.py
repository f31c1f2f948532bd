"""Training with the paper's settings: full graphs for nodes, shuffled batches for graphs. Read `networks.py` first."""
