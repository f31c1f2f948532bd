"""What the command line is given, read and checked: models, weights, data, targets. Nothing is ever unpickled.

Read `cli_question.py` first: it reads everything in turn.
"""
