"""Known models as a short program of message layers and row-wise operations, so that all targets run at once.

`program.py` reads the program off a recorded forward pass, `layers/` has one small file for each known conv, `levels.py` lays
the trimmed computation graphs side by side, `engine.py` runs the program on them, `differences.py` propagates what a missing
message changes. A program is used only after it reproduced the model's output.
"""
