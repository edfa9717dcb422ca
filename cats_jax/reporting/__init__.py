"""Tables, plots, statistics and certificates made from the rows of runs."""
