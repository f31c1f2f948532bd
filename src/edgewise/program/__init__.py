"""Known models as a short program of message layers and row-wise operations, so that all targets run at once.

Start with `ir.py` (what a program is) and `domains.py` (how one is read, in any arithmetic). `compile.py` makes it from a
recorded forward pass: `operations.py` is the one table of operations, `row_function.py` records inner networks, `layers/` has
one lowering for each known conv. `levels.py` lays the trimmed computation graphs of many targets side by side, `execution.py`
runs the program on them, `reverse.py` has the gradients of all targets. `perturbation.py` is occlusion:
`perturbation_forward.py` carries the change that a missing message makes through the calls, `perturbation_output.py` reads off
what each target loses. `lowering.py` holds a program and its activations for one graph. `kernels/` has compiled twins of the
loops that cost most.

A program is used only after it reproduced the model's output. The files share one worked example, the path 0 → 1 → 2 with the
features (1, 10, 100) and two calls that add to each node what it receives.
"""
