"""What the command line writes: results with a manifest beside them, each complete or not there."""
