"""How messages travel between the server and the cohorts of agents."""
