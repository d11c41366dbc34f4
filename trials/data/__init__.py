"""Loading data into a trial."""
