"""From rows to pages: tables beside the published numbers, figures in the paper's layout, and why numbers differ."""
