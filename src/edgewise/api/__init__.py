"""What users call, a file for each public verb; no algorithm lives here."""
