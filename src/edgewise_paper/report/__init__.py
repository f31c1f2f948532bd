"""The report: tables beside the published numbers, figures in the paper's layout, and why numbers differ.

Read `write.py` first. `sections.py` and `reasons.py` say what is in the report, `document.py` what a report is made of
and how it becomes Markdown and HTML, `figures.py` and `charts.py` draw.
"""
