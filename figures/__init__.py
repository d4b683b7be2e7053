"""Figures and the report: one script per figure, drawn from rows on disk; ``python -m figures list`` names them."""
