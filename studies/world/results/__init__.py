"""The published study of the embedded world: the rows of its runs, and the pages' tables of them.

`rows`, `banks` and `ablations` keep what runs and banks gave in `docs/results/rows`; `pages` makes
tables and figures of these rows.
"""
