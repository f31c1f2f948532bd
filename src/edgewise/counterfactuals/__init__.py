"""The smallest set of edges that changes a prediction, with a proof. Read `smallest_set.py` first.

| file | what it knows |
|---|---|
| `goal.py`, `question_goals.py` | what counts as a change: margins that must fall below 0 |
| `edge_units.py` | what is taken away at once: a column, or both directions of an edge |
| `set_answers.py` | what the model says without some units: any model, silenced or removed |
| `set_program.py`, `set_steps.py` | the same for lowered models, thousands of sets in a pass |
| `rounding_bound.py`, `exact_numbers.py` | how far floating-point numbers may be from the true ones |
| `set_intervals.py` | bounds of every value, when at most r further units may go |
| `linear_bounds.py` | a better lower bound of the margin, and what each unit can cost |
| `first_answer.py` | greedy and beam search: some set that changes the prediction |
| `set_enumeration.py` | all sets of one size |
| `set_tree.py` | branch and bound: a set of at most k units, or a proof that there is none |
| `smallest_set.py` | all of them in turn, until the answer is proven or the allowance is spent |
"""
