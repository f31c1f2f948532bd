"""What users get: explanations, walks, comparisons, metrics' numbers, and how they are stored and exported.

Start with `explanation.py`. Nothing here imports `metrics/` or `report/` when it is loaded: these stand above.
"""
