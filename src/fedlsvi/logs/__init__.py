"""Logged data in place of an environment: tables, arrays and Minari data sets, checked as read."""

RECORDS = "records"
"""Name of a log in settings files and run folders."""
SEEN = "seen"
"""`allowed` of agents that play only what their own logs have seen."""
