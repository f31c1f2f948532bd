"""Searches for the most relevant walks; read `order.py` (what a search returns, and ties), then `exact.py`.

Every search takes a `Network`, its boxes, and the `Front` of explained nodes, and returns a `SearchResult`. `exact.py` proves
its result (the `Incumbents` of `order.py` are the best walks found so far); `exhaustive.py` goes through all walks; `dag.py`,
`amp.py` and `emp.py` are the searches of the literature.
"""
