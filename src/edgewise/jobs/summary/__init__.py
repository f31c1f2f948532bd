"""The page of a job: facts about all of its targets, and which of them to look at first. Read `job_page.py` first."""
