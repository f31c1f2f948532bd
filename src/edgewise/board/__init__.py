"""The leaderboard: every method on data sets whose right explanation is known. The front door is `api/leaderboard.py`.

`entrants.py` says who takes part, `trained_network.py` trains one network and picks its targets, `measures.py` measures an
answer, `board_run.py` does so for all of them, `board_folder.py` keeps what is finished, `rank_sets.py` and `summary.py` do the
statistics, `board.py` is the result, `board_page.py` its page.
"""
