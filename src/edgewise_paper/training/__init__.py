"""Training with the paper's settings: full graphs for nodes, shuffled batches for graphs; it can be interrupted."""
