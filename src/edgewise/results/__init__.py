"""What users get: explanations, walks, comparisons, and how they are stored and exported. Start with `explanation.py`."""
